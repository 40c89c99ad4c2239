// True if a stream is on a GPU. That GPU is the calling thread's current device during the object's lifetime,
// since launches, function attributes and numbers of SMs are those of the current device:
//   if (const OnGpu gpu(stream); gpu) return cuda::merge(args, stream);
#pragma once

#include <optional>

#include "attend/tensor/cuda.h"
#include "attend/tensor/device.h"

namespace attend::kernels {

class OnGpu {
 public:
  explicit OnGpu(const Stream& stream) : OnGpu(stream.device) {}
  explicit OnGpu(Device device) {
    if (device.type == DeviceType::kCuda) scope_.emplace(device);
  }
  explicit operator bool() const { return scope_.has_value(); }

 private:
  std::optional<attend::cuda::DeviceScope> scope_;
};

}  // namespace attend::kernels
