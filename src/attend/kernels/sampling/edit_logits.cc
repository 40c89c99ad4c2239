#include "attend/kernels/sampling/edit_logits.h"

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/sampling/cpu/sampling.h"
#include "attend/kernels/sampling/cuda/sampling.h"
#include "attend/kernels/sampling/logprobs.h"

namespace attend::kernels {
namespace {

void check_rows(const TensorView& logits, const Stream& stream) {
  require_rank("logits", logits, 2);
  require_dtype("logits", logits, DType::kF32);
  require_unit_stride("logits", logits);
  require_on(stream, "logits", logits);
}

template <class T>
void require_size(std::string_view name, View<T> array, int64_t size) {
  require(std::ssize(array) == size, name, ": ", array.size(), ", expected ", size);
}

void check_edits(const TensorView& logits, const LogitEdits& edits) {
  require_size("cu_edits", edits.cu_edits, logits.shape[0] + 1);
  require_size("before", edits.before, std::ssize(edits.edits));
  if (edits.mask_row_idx.empty()) return;
  require_size("mask_row_idx", edits.mask_row_idx, logits.shape[0]);
  require(std::ssize(edits.masks) % mask_words(logits.shape[1]) == 0, "masks: ", edits.masks.size(),
          " words, expected ", mask_words(logits.shape[1]), " for each");
}

}  // namespace

void edit_logits(const TensorView& logits, const LogitEdits& edits, Stream& stream) {
  check_rows(logits, stream);
  check_edits(logits, edits);
  if (const OnGpu gpu(stream); gpu) return cuda::edit_logits(logits, edits, stream);
  cpu::edit_logits(logits, edits);
}

void top_logprobs(const TensorView& logits, View<const int32_t> num_top, View<float> log_sums,
                  View<TokenLogprob> top, Stream& stream) {
  check_rows(logits, stream);
  const int64_t num_rows = logits.shape[0];
  require_size("num_top", num_top, num_rows);
  require_size("log_sums", log_sums, num_rows);
  require_size("top", top, num_rows * kMaxTopLogprobs);
  if (const OnGpu gpu(stream); gpu) return cuda::top_logprobs(logits, num_top, log_sums, top, stream);
  cpu::top_logprobs(logits, num_top, log_sums, top, cpu::detect_isa());
}

void token_logprobs(const TensorView& logits, const LogitEdits& edits, View<const int32_t> ids,
                    View<const float> log_sums, View<float> logprobs, Stream& stream) {
  check_rows(logits, stream);
  check_edits(logits, edits);
  require_size("ids", ids, logits.shape[0]);
  require_size("log_sums", log_sums, logits.shape[0]);
  require_size("logprobs", logprobs, logits.shape[0]);
  if (const OnGpu gpu(stream); gpu)
    return cuda::token_logprobs(logits, edits, ids, log_sums, logprobs, stream);
  cpu::token_logprobs(logits, edits, ids, log_sums, logprobs);
}

}  // namespace attend::kernels
