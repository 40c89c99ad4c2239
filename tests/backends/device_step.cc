#include "tests/backends/device_step.h"

#include "tests/kernels/cuda/support/device_copy.h"

namespace attend::conformance {
namespace {

// Memory from a view's first element to its last one.
TensorView backing_memory(const TensorView& view) {
  int64_t elements = 1;
  for (int dim = 0; dim < view.rank; ++dim) {
    const auto d = static_cast<size_t>(dim);
    if (view.shape[d] == 0) return {};
    elements += (view.shape[d] - 1) * view.strides[d];
  }
  TensorView memory =
      TensorView::contiguous(view.data, DType::kU8, {elements * static_cast<int64_t>(size_of(view.dtype))});
  memory.device = view.device;
  return memory;
}

// An empty array has an address too, as in a runner.
template <class T>
View<const T> upload(View<const T> host, testing_cuda::DeviceArrays& arrays) {
  const T spare[1] = {};
  if (host.empty()) return {arrays.upload(std::span<const T>(spare)), 0};
  return arrays.view(std::span<const T>(host));
}

ForwardBatch upload(const ForwardBatch& host, testing_cuda::DeviceArrays& arrays) {
  ForwardBatch batch = host;
  batch.request_rows = upload(host.request_rows, arrays);
  batch.seqlen_kv = upload(host.seqlen_kv, arrays);
  batch.cu_seqlen_q = upload(host.cu_seqlen_q, arrays);
  batch.positions = upload(host.positions, arrays);
  batch.out_slots = upload(host.out_slots, arrays);
  batch.tree_mask = arrays.view(host.tree_mask);
  return batch;
}

}  // namespace

DeviceStep::DeviceStep(std::unique_ptr<KvPool> pool, const ReqToTokenPool& host_requests,
                       View<const float> sinks, Device device)
    : stream_(device), pool_(std::move(pool)), requests_(host_requests, device) {
  if (!sinks.empty())
    sinks_ = cuda::copy_to(
        TensorView::contiguous(const_cast<float*>(sinks.data()), DType::kF32, {std::ssize(sinks)}), device);
}

void DeviceStep::copy_pool(const KvPool& from, const KvPool& to, int layer_id) {
  const LayerKv source = from.layer(layer_id), target = to.layer(layer_id);
  cuda::copy(backing_memory(source.k), backing_memory(target.k), stream_.get());
  cuda::copy(backing_memory(source.v), backing_memory(target.v), stream_.get());
}

void DeviceStep::run(AttentionBackend& backend, const AttentionLayer& layer, const LayerInput& input,
                     const ForwardBatch& host_batch, const KvPool& host_pool) {
  using testing_cuda::DeviceCopy;
  Stream& stream = stream_.get();
  testing_cuda::DeviceArrays arrays(stream);
  const ForwardBatch batch = upload(host_batch, arrays);
  const DeviceCopy q(input.attend.q, stream), k(input.k, stream), v(input.v, stream),
      q_rope(input.attend.q_rope, stream), k_rope(input.k_rope, stream), out(input.attend.out, stream),
      lse(input.attend.lse, stream);
  LayerInput device;
  device.attend = {.q = q.view(), .q_rope = q_rope.view(), .out = out.view(), .lse = lse.view()};
  device.k = k.view();
  device.v = v.view();
  device.k_rope = k_rope.view();
  copy_pool(host_pool, *pool_, layer.layer_id);
  backend.plan(batch, stream);
  attend_layer(backend, layer, device, batch, stream);
  out.download(stream);
  lse.download(stream);
  copy_pool(*pool_, host_pool, layer.layer_id);
  cuda::synchronize(stream);
}

}  // namespace attend::conformance
