#include "attend/engine/step_runner.h"

#include <utility>

#include "attend/base/error.h"
#include "attend/engine/request.h"
#include "attend/kernels/sampling/sampling.h"

namespace attend {

StepRunner::StepRunner(Model& model, AttentionBackend& attention, const ReqToTokenPool& rows,
                       const BatchLimits& limits, Device device)
    : model_(model),
      attention_(attention),
      rows_(rows),
      stream_{device},
      inputs_(limits, rows, device),
      logits_(Tensor::empty({limits.max_reqs, model.spec().vocab_size}, DType::kF32, device)),
      tokens_(device.type == DeviceType::kCuda ? cuda::empty_pinned({limits.max_reqs}, DType::kI32, device)
                                               : Tensor::empty({limits.max_reqs}, DType::kI32)) {
  if (device.type == DeviceType::kCpu) return;
  gpu_stream_.emplace(device);
  stream_ = gpu_stream_->get();
}

void StepRunner::pad_decodes(std::vector<int> sizes) { graphs_ = GraphRunner(std::move(sizes)); }

void StepRunner::record_graphs(const GraphProgress& progress) {
  ensure(gpu_stream_.has_value(), "graphs of a CPU's steps");
  const ScheduledStep padding{.requests = {}, .num_tokens = 0, .mode = ForwardMode::kDecode};
  int built = 0;
  const auto queue = [&](int size) {
    // The same inputs serve the run before and the recording, which must not hold their upload.
    if (built != size) inputs_.build(padding, stream_, size);
    built = size;
    queue_step();
  };
  graphs_.record(stream_, queue, progress);
}

View<const int32_t> StepRunner::run(const ScheduledStep& step) {
  const auto num_reqs = static_cast<int>(step.requests.size());
  const int size = step.mode == ForwardMode::kDecode ? graphs_.padded_size(num_reqs) : 0;
  inputs_.build(step, stream_, size);
  const auto start = Clock::now();
  if (!graphs_.launch(size, stream_)) queue_step();
  if (gpu_stream_.has_value()) cuda::synchronize(stream_);
  device_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
  return tokens_.span<int32_t>().first(inputs_.sampling_requests().size());
}

void StepRunner::queue_step() {
  const ForwardBatch& batch = inputs_.batch();
  rows_.upload({.rows = raw(batch.request_rows),
                .cu_seqlen_q = batch.cu_seqlen_q,
                .positions = batch.positions,
                .slots = raw(batch.out_slots)},
               stream_);
  attention_.plan(batch, stream_);
  const auto num_rows = static_cast<int64_t>(inputs_.rules().size());
  const TensorView logits = logits_.view().slice(0, 0, num_rows);
  model_.forward(inputs_.model_input(), batch, attention_, logits, stream_);
  if (num_rows > 0)
    kernels::sample(logits, inputs_.rules(), tokens_.span<int32_t>().first(inputs_.rules().size()), stream_);
}

}  // namespace attend
