// StatePool: recurrent states of every layer, by state slot.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "attend/kv/cache_spec.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// States of one layer. Slot 0 is the padding slot, the next slots belong to request rows, the others hold
// snapshots.
struct LayerState {
  TensorView recurrent;  // f32 [num_slots, num_heads, head_dim_v, head_dim_k]; empty: no such state
  TensorView conv;       // [num_slots, conv_inputs, conv_channels]
};

// Slots are not cleared: a request starts from zeros without reading its slot (kernels::RecurrentBatch).
class StatePool {
 public:
  struct Config {
    std::vector<CacheSpec> caches = {};  // state_caches() of the model
    int num_slots = 0;                   // including the padding slot
    DType dtype = DType::kF32;           // of the convolutions' inputs: that of activations
    Device device = {};

    // Bytes of one slot, sum over all layers.
    size_t slot_bytes() const;
    size_t num_bytes() const;
  };

  // Throws Error(kOutOfMemory) with needed and free bytes.
  explicit StatePool(const Config& config);

  // `layer`: index among the layers with states, in the order of the model's layers.
  const LayerState& layer(int layer) const { return layers_.at(static_cast<size_t>(layer)); }
  int num_layers() const { return static_cast<int>(layers_.size()); }
  int num_slots() const { return config_.num_slots; }

 private:
  Config config_;
  std::vector<LayerState> layers_;
  std::vector<Tensor> memory_;
};

}  // namespace attend
#pragma GCC visibility pop
