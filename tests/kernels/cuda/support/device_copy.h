// Copies of host tensors and arrays of a test on the GPU.
#pragma once

#include <span>
#include <vector>

#include "attend/tensor/cuda.h"

namespace attend::testing_cuda {

inline constexpr Device kGpu{DeviceType::kCuda, 0};

// Copy of a strided view on the GPU with the same strides, gaps included.
class DeviceCopy {
 public:
  DeviceCopy(const TensorView& host, Stream& stream);
  const TensorView& view() const { return view_; }
  // All bytes including gaps; empty if the view is empty.
  TensorView bytes() const { return host_.empty() ? TensorView{} : storage_.view(); }
  // Copies everything back to the host view, gaps included.
  void download(Stream& stream) const;

 private:
  TensorView host_, view_;
  Tensor storage_;
};

// Arrays on the GPU that are freed together.
class DeviceArrays {
 public:
  explicit DeviceArrays(Stream& stream) : stream_(stream) {}

  template <class T>
  const T* upload(std::span<const T> host) {
    if (host.empty()) return nullptr;
    const auto num_bytes = static_cast<int64_t>(host.size_bytes());
    Tensor device = cuda::empty({num_bytes}, DType::kU8, kGpu);
    cuda::copy(TensorView::contiguous(const_cast<T*>(host.data()), DType::kU8, {num_bytes}), device, stream_);
    arrays_.push_back(device);
    return static_cast<const T*>(device.view().data);
  }
  // Uploads an array and returns a view of it.
  template <class T>
  View<const T> view(std::span<const T> host) {
    return {upload(host), host.size()};
  }

 private:
  Stream& stream_;
  std::vector<Tensor> arrays_;
};

}  // namespace attend::testing_cuda
