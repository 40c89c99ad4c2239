#include "attend/kernels/cuda/sm90/device_clusters.h"

#include <map>
#include <memory>
#include <mutex>

#include "attend/kernels/cuda/sm90/dense_kernel.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda::sm90 {

DeviceClusters::DeviceClusters(Device device) {
  const attend::cuda::DeviceInfo info = attend::cuda::device_info(device);
  can_run = info.major == 9 && info.minor == 0;
  if (!can_run) return;
  const attend::cuda::DeviceScope scope(device);
  for (size_t i = 0; i < kClusterSizes.size(); ++i) num_clusters[i] = max_clusters(kClusterSizes[i]);
}

const DeviceClusters& clusters_of(Device device) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, std::unique_ptr<DeviceClusters>>;
  const std::lock_guard lock(mutex);
  auto& found = devices[device.index];
  if (found == nullptr) found = std::make_unique<DeviceClusters>(device);
  return *found;
}

}  // namespace attend::kernels::cuda::sm90
