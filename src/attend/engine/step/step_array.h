// StepArray: an array of a step that few steps need, and so is made when one does.
#pragma once

#include <algorithm>

#include "attend/tensor/cuda.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Which memory a step's array has where the device is a GPU; on the CPU there is one.
enum class StepMemory : uint8_t {
  kUploaded,  // the host fills it, the device reads a copy
  kResult,    // page-locked: the device writes it, the host reads it when the stream has caught up
  kDevice,    // the device's alone
};

// Reused by the next step: no step may be in flight when it is filled.
template <class T>
class StepArray {
 public:
  StepArray(StepMemory memory, Device device) : memory_(memory), device_(device) {}

  // As many elements, whose values are lost.
  void resize(size_t size) {
    size_ = size;
    if (size <= capacity_) return;
    capacity_ = std::max(size, 2 * capacity_);
    const auto num_bytes = static_cast<int64_t>(capacity_ * sizeof(T));
    const bool gpu = device_.type == DeviceType::kCuda;
    if (!gpu)
      host_ = on_device_ = Tensor::empty({num_bytes}, DType::kU8);
    else if (memory_ == StepMemory::kDevice)
      on_device_ = cuda::empty({num_bytes}, DType::kU8, device_);
    else
      host_ = on_device_ = cuda::empty_pinned({num_bytes}, DType::kU8, device_);
    if (gpu && memory_ == StepMemory::kUploaded) on_device_ = cuda::empty({num_bytes}, DType::kU8, device_);
  }

  View<T> host() const { return {static_cast<T*>(host_.view().data), size_}; }
  // Where kernels read or write it.
  View<T> on_device() const { return {static_cast<T*>(on_device_.view().data), size_}; }

  void upload(Stream& stream) const {
    if (device_.type == DeviceType::kCpu || size_ == 0) return;
    const auto num_bytes = static_cast<int64_t>(size_ * sizeof(T));
    cuda::copy(host_.view().slice(0, 0, num_bytes), on_device_.view().slice(0, 0, num_bytes), stream);
  }

 private:
  StepMemory memory_;
  Device device_;
  size_t size_ = 0, capacity_ = 0;
  Tensor host_, on_device_;
};

}  // namespace attend
