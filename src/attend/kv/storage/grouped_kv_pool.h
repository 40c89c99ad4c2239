// GroupedKvPool: pool of several MHA pools with the same token slots, for layers that differ in the number or
// the size of their KV heads.
#pragma once

#include <memory>
#include <vector>

#include "attend/kv/kv_pool.h"

namespace attend {

class GroupedKvPool : public KvPool {
 public:
  struct Config {
    std::vector<MhaKvPool::Config> groups;  // same pages, dtype and device
    std::vector<int> layer_groups;          // [layers of the model]: group of each layer
  };
  // Throws the errors of MhaKvPool, and Error(kInvalidArgument) for groups that do not match.
  explicit GroupedKvPool(const Config& config);

  LayerKv layer(int layer_id) const override;
  TensorView latent(int layer_id) const override;
  size_t bytes_per_token() const override;

  static size_t num_bytes(const Config& config);

 private:
  std::vector<int> layer_groups_, local_ids_;  // index of each layer in its group
  std::vector<std::unique_ptr<MhaKvPool>> groups_;
};

}  // namespace attend
