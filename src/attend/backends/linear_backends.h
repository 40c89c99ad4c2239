// Backends of recurrent layers (linear attention). A hybrid model pairs one with its attention backends.
#pragma once

#include <algorithm>
#include <string_view>

#include "attend/tensor/device.h"

namespace attend {

struct LinearBackend {
  std::string_view name;
  DeviceType device;
  std::string_view summary;
};

inline constexpr LinearBackend kLinearBackends[] = {
    {.name = "cpu_steps",
     .device = DeviceType::kCpu,
     .summary = "prompts and decode: one step of the recurrence per token"},
    {.name = "cuda_chunks",
     .device = DeviceType::kCuda,
     .summary = "prompts: chunks of tokens; decode and deterministic inference: one step per token"},
};

// Returns the backend of a device type.
constexpr const LinearBackend& linear_backend(DeviceType device) {
  return *std::ranges::find(kLinearBackends, device, &LinearBackend::device);
}

}  // namespace attend
