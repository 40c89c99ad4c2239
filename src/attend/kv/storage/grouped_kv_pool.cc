#include "attend/kv/storage/grouped_kv_pool.h"

#include "attend/base/error.h"

namespace attend {

GroupedKvPool::GroupedKvPool(const Config& config)
    : KvPool(config.groups.at(0).page_size, config.groups[0].num_pages, config.groups[0].dtype),
      layer_groups_(config.layer_groups) {
  std::vector<int> num_layers(config.groups.size(), 0);
  for (const int group : layer_groups_) local_ids_.push_back(num_layers.at(static_cast<size_t>(group))++);
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const MhaKvPool::Config& group = config.groups[i];
    require(group.num_layers == num_layers[i], "GroupedKvPool: group ", i, " of ", group.num_layers,
            " layers: expected ", num_layers[i]);
    require(group.page_size == page_size() && group.num_pages == num_pages() && group.dtype == dtype() &&
                group.device == config.groups[0].device,
            "GroupedKvPool: page_size ", group.page_size, ", ", group.num_pages, " pages, ", group.dtype,
            " on ", group.device, " of group ", i, ": expected those of group 0");
    groups_.push_back(std::make_unique<MhaKvPool>(group));
  }
}

LayerKv GroupedKvPool::layer(int layer_id) const {
  require(layer_id >= 0 && layer_id < std::ssize(layer_groups_), "layer ", layer_id,
          ": GroupedKvPool has layers 0 to ", std::ssize(layer_groups_) - 1);
  const auto i = static_cast<size_t>(layer_id);
  return groups_[static_cast<size_t>(layer_groups_[i])]->layer(local_ids_[i]);
}

TensorView GroupedKvPool::latent(int layer_id) const {
  fail(ErrorCode::kUnsupported, "latent rows of layer ", layer_id,
       ": GroupedKvPool stores K and V, only MlaKvPool has latent rows");
}

size_t GroupedKvPool::bytes_per_token() const {
  size_t bytes = 0;
  for (const auto& group : groups_) bytes += group->bytes_per_token();
  return bytes;
}

size_t GroupedKvPool::num_bytes(const Config& config) {
  size_t bytes = 0;
  for (const MhaKvPool::Config& group : config.groups) bytes += MhaKvPool::num_bytes(group);
  return bytes;
}

}  // namespace attend
