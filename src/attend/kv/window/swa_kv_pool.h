// SwaKvPool: pool of two halves, full and window. Sliding-window layers store only the tokens of their
// windows, so the window half is smaller, and its slots are reused after the window has passed.
#pragma once

#include <vector>

#include "attend/kv/kv_pool.h"

namespace attend {

class SwaKvPool : public KvPool {
 public:
  struct Config {
    // Layers of each half, numbered from 0; page size, dtype and device are the same in both.
    MhaKvPool::Config full, swa;
    std::vector<bool> windowed;  // [layers of the model]: true: the layer is in the window half
  };
  // `slot_map`: DeviceSlotMap::slot_map() on the pool's device, whose memory outlives the pool: int32, slot
  // of the full half -> slot of the window half. Throws the errors of MhaKvPool, and Error(kInvalidArgument)
  // for halves or a map that do not match.
  SwaKvPool(const Config& config, const TensorView& slot_map);

  LayerKv layer(int layer_id) const override;
  TensorView latent(int layer_id) const override;
  // Bytes of a token that is in both halves.
  size_t bytes_per_token() const override;
  const Config& config() const { return config_; }

  static size_t num_bytes(const Config& config);

 private:
  Config config_;
  MhaKvPool full_, swa_;
  std::vector<int> local_ids_;  // index of each layer in its half
  TensorView slot_map_;
};

}  // namespace attend
