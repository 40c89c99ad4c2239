#include "tests/kernels/cuda/support/device_copy.h"

namespace attend::testing_cuda {
namespace {

// Bytes from the first element to the end of the last one.
int64_t extent_bytes(const TensorView& view) {
  int64_t last = 0;
  for (int dim = 0; dim < view.rank; ++dim) {
    const auto d = static_cast<size_t>(dim);
    if (view.shape[d] == 0) return 0;
    last += (view.shape[d] - 1) * view.strides[d];
  }
  return (last + 1) * static_cast<int64_t>(size_of(view.dtype));
}

}  // namespace

DeviceCopy::DeviceCopy(const TensorView& host, Stream& stream) : host_(host), view_(host) {
  if (host.empty()) return;
  const int64_t num_bytes = extent_bytes(host);
  storage_ = cuda::empty({num_bytes}, DType::kU8, kGpu);
  view_.data = storage_.view().data;
  view_.device = kGpu;
  if (num_bytes > 0) cuda::copy(TensorView::contiguous(host.data, DType::kU8, {num_bytes}), storage_, stream);
}

void DeviceCopy::download(Stream& stream) const {
  if (host_.empty() || extent_bytes(host_) == 0) return;
  cuda::copy(storage_, TensorView::contiguous(host_.data, DType::kU8, {extent_bytes(host_)}), stream);
}

}  // namespace attend::testing_cuda
