// Inputs and outputs of a BackendCase's step on a GPU.
#pragma once

#include <memory>

#include "attend/kv/kv_pool.h"
#include "attend/kv/storage/device_rows.h"
#include "attend/tensor/cuda.h"
#include "tests/backends/layer_input.h"

namespace attend::conformance {

// Pools on a GPU next to the host pools, which tests write and inspect. Views passed here are on the host.
class DeviceStep {
 public:
  // `pool` has the geometry of the host pool and is empty. Copies the current request table of the host.
  DeviceStep(std::unique_ptr<KvPool> pool, const ReqToTokenPool& host_requests, View<const float> sinks,
             Device device);

  KvPool& pool() const { return *pool_; }
  const TensorView& request_table() const { return requests_.table(); }
  View<const float> sinks() const { return sinks_.span<float>(); }

  // Uploads pools, tensors and arrays, plans and attends, and downloads results and pool.
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
