// StepArray: array of a step that few steps need. It is allocated when it is first used.
#pragma once

#include <algorithm>

#include "attend/tensor/cuda.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Memory of an array if the device is a GPU. On the CPU there is only one kind.
enum class StepMemory : uint8_t {
  kUploaded,  // the host fills it, the device reads a copy
  kResult,    // page-locked: the device writes it, the host reads it after the stream is synchronized
  kDevice,    // only the device accesses it
};

// The next step reuses the memory, so no step may be in flight when the array is filled.
template <class T>
class StepArray {
 public:
  StepArray(StepMemory memory, Device device) : memory_(memory), device_(device) {}

  // Sets the number of elements. Discards their values.
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
  // View that kernels read or write.
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
