// Device: a CPU or a GPU. Stream: a queue of its work.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#pragma GCC visibility push(default)
namespace attend {

enum class DeviceType : uint8_t { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, Device device) {
  if (device.type == DeviceType::kCpu) return out << "cpu";
  return out << "cuda:" << device.index;
}

// On the CPU every operation is complete when its call returns, and `handle` is null. On a GPU `handle` is
// the cudaStream_t, which the caller owns. Copyable; does not own.
struct Stream {
  Device device;
  void* handle = nullptr;
};

}  // namespace attend
#pragma GCC visibility pop
