// SwaKvPool: a pool in two halves. Layers with a sliding window keep the tokens of their windows alone, so
// their half is smaller and its slots are handed out anew behind the window.
#pragma once

#include <vector>

#include "attend/kv/kv_pool.h"

namespace attend {

class SwaKvPool : public KvPool {
 public:
  struct Config {
    // Layers of each half, numbered from 0; page size, dtype and device are the same in both.
    MhaKvPool::Config full, swa;
    std::vector<bool> windowed;  // [layers of the model]: of which half each one is
  };
  // `slot_map`: DeviceSlotMap::slot_map() on the pool's device, whose memory outlives the pool: int32, slot
  // of the full half -> slot of the window half. Throws as MhaKvPool, and Error(kInvalidArgument) for halves
  // or a map that do not fit each other.
  SwaKvPool(const Config& config, const TensorView& slot_map);

  LayerKv layer(int layer_id) const override;
  TensorView latent(int layer_id) const override;
  // Of a token that stands in both halves.
  size_t bytes_per_token() const override;
  const Config& config() const { return config_; }

  static size_t num_bytes(const Config& config);

 private:
  Config config_;
  MhaKvPool full_, swa_;
  std::vector<int> local_ids_;  // of each layer in its half
  TensorView slot_map_;
};

}  // namespace attend
