// GPUs that kernels are selected for.
#pragma once

#include <array>

#include "attend/kernels/common/gpu_facts.h"

namespace attend::testing_choose {

using kernels::GpuFacts;

inline constexpr GpuFacts kA100{.major = 8, .minor = 0, .num_sms = 108, .shared_bytes = 163 << 10};
// The GPU with the least shared memory.
inline constexpr GpuFacts kL40S{.major = 8, .minor = 9, .num_sms = 142, .shared_bytes = 99 << 10};
inline constexpr GpuFacts kH100{
    .major = 9, .minor = 0, .num_sms = 132, .shared_bytes = 227 << 10, .has_sm90a = true};
// An H100 in a build without code for sm_90a.
inline constexpr GpuFacts kPlainH100{.major = 9, .minor = 0, .num_sms = 132, .shared_bytes = 227 << 10};
inline constexpr GpuFacts kB200{
    .major = 10, .minor = 0, .num_sms = 148, .shared_bytes = 227 << 10, .has_sm90a = true};
inline constexpr std::array kGpus{kA100, kL40S, kH100, kPlainH100, kB200};

}  // namespace attend::testing_choose
