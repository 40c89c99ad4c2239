// What a BackendCase's step reads and writes, on a GPU.
#pragma once

#include <memory>

#include "attend/kv/kv_pool.h"
#include "attend/kv/storage/device_rows.h"
#include "attend/tensor/cuda.h"
#include "tests/backends/layer_input.h"

namespace attend::conformance {

// Pools of a GPU beside the host's, which hold what tests write and look at. Views passed here lie on the
// host.
class DeviceStep {
 public:
  // `pool`: as the host's, empty. The table is the host's at that time.
  DeviceStep(std::unique_ptr<KvPool> pool, const ReqToTokenPool& host_requests, View<const float> sinks,
             Device device);

  KvPool& pool() const { return *pool_; }
  const TensorView& request_table() const { return requests_.table(); }
  View<const float> sinks() const { return sinks_.span<float>(); }

  // Uploads pools, tensors and arrays, plans and attends, and brings results and pool back.
  void run(AttentionBackend& backend, const AttentionLayer& layer, const LayerInput& input,
           const ForwardBatch& batch, const KvPool& host_pool);

 private:
  void copy_pool(const KvPool& from, const KvPool& to, int layer_id);

  cuda::OwnedStream stream_;
  std::unique_ptr<KvPool> pool_;
  DeviceRows requests_;
  Tensor sinks_;
};

}  // namespace attend::conformance
