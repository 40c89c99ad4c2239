// Device: location of memory and execution.
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

}  // namespace attend
#pragma GCC visibility pop
