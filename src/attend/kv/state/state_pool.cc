#include "attend/kv/state/state_pool.h"

#include <algorithm>
#include <utility>

#include "attend/tensor/arena.h"

namespace attend {
namespace {

// Shapes of all layers, in the order of the layers.
std::vector<StateShape> layer_shapes(std::span<const CacheSpec> caches) {
  std::vector<std::pair<int, StateShape>> layers;
  for (const CacheSpec& cache : caches)
    for (const int layer : cache.layers) layers.emplace_back(layer, cache.state);
  std::ranges::sort(layers, {}, &std::pair<int, StateShape>::first);
  std::vector<StateShape> shapes;
  for (const auto& [layer, shape] : layers) shapes.push_back(shape);
  return shapes;
}

int64_t recurrent_elements(const StateShape& shape) {
  return int64_t{shape.num_heads} * shape.head_dim_v * shape.head_dim_k;
}
int64_t conv_elements(const StateShape& shape) { return int64_t{shape.conv_inputs} * shape.conv_channels; }

}  // namespace

size_t StatePool::Config::slot_bytes() const {
  size_t bytes = 0;
  for (const StateShape& shape : layer_shapes(caches))
    bytes += static_cast<size_t>(recurrent_elements(shape)) * sizeof(float) +
             static_cast<size_t>(conv_elements(shape)) * size_of(dtype);
  return bytes;
}

size_t StatePool::Config::num_bytes() const {
  size_t bytes = 0;
  const auto slots = static_cast<size_t>(num_slots);
  for (const StateShape& shape : layer_shapes(caches))
    bytes += Arena::padded_bytes(slots * static_cast<size_t>(recurrent_elements(shape)) * sizeof(float)) +
             Arena::padded_bytes(slots * static_cast<size_t>(conv_elements(shape)) * size_of(dtype));
  return bytes;
}

StatePool::StatePool(const Config& config) : config_(config) {
  Arena arena(config.num_bytes(), "StatePool", config.device);
  const auto allocate = [&](std::initializer_list<int64_t> shape, DType dtype) {
    return memory_.emplace_back(arena.allocate(shape, dtype)).view();
  };
  for (const StateShape& shape : layer_shapes(config.caches)) {
    LayerState& layer = layers_.emplace_back();
    if (recurrent_elements(shape) > 0)
      layer.recurrent =
          allocate({config.num_slots, shape.num_heads, shape.head_dim_v, shape.head_dim_k}, DType::kF32);
    if (conv_elements(shape) > 0)
      layer.conv = allocate({config.num_slots, shape.conv_inputs, shape.conv_channels}, config.dtype);
  }
}

}  // namespace attend
