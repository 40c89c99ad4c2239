// How many clusters of CTAs a device runs at once, on which the sharing of layers depends.
#pragma once

#include <array>

#include "attend/kernels/cuda/sm90/dense_shape.h"
#include "attend/tensor/device.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr std::array kClusterSizes = {1, 2, 4, kMaxClusterSize};

struct DeviceClusters {
  bool can_run = false;  // the device runs code for sm_90a
  // Of each of kClusterSizes, that run at once with all shared memory of an SM for each CTA.
  std::array<int, kClusterSizes.size()> num_clusters{};

  explicit DeviceClusters(Device device);
};

// Found when it is first wanted, once a device.
const DeviceClusters& clusters_of(Device device);

}  // namespace attend::kernels::cuda::sm90
