// LoadableModel: a model whose weights are still to come.
#pragma once

#include <memory>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/architectures/architecture.h"
#include "attend/model/model.h"
#include "attend/model/weights/load_weights.h"

namespace attend {

class LoadableModel : public Model {
 public:
  // Every weight, in the order of use. Slots point into the model.
  virtual std::vector<WeightSlot> weight_slots() = 0;
  // Once every slot is placed.
  virtual void adopt(LoadedWeights weights) = 0;
  // Bytes that prepare() allocates. A double, since it may not fit a size_t.
  virtual double prepared_bytes(const BatchLimits& limits) = 0;
};

// A model of the spec. `own_head`: its lm_head has weights of its own. Throws Error(kUnsupported) for an
// architecture that attend does not have.
std::unique_ptr<LoadableModel> make_model(const ModelSpec& spec, const ModelPlacement& placement,
                                          bool own_head);

// load_model (model.h) from tensors that are open; null: random weights.
std::unique_ptr<Model> load_model(std::shared_ptr<const CheckpointTensors> files, const ModelSpec& spec,
                                  const LoadProgress& progress, const ModelPlacement& placement);

// The slots of a model, by the names that its files have.
struct NamedSlots {
  std::unique_ptr<LoadableModel> model;  // what slots are placed into
  std::vector<WeightSlot> slots;
  WeightPrefixes prefixes = {};  // find_prefixes() of the files
};

// Slots as rank `rank` of `num_ranks` loads them (shard()). With files (nullptr: none) parts have their names
// and storage, and there is a head of the model's own where they have one. Checks no tensor:
// check_unused_tensors() does. Throws as make_model() and shard() do.
NamedSlots make_named_slots(const ModelSpec& spec, const ModelPlacement& placement,
                            const CheckpointTensors* files, int rank = 0, int num_ranks = 1);

}  // namespace attend
