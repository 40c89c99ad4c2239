// The slots of a model, by the names that its files have.
#pragma once

#include <memory>
#include <vector>

#include "attend/model/architectures/architecture.h"
#include "attend/model/loadable_model.h"

namespace attend {

struct NamedSlots {
  std::unique_ptr<LoadableModel> model;  // what slots are placed into
  std::vector<WeightSlot> slots;
  const WeightPrefix* prefix = nullptr;  // find_prefix() of the files
};

// With files (nullptr: none) parts have their names and storage, and there is a head of the model's own where
// they have one. Holds nothing against the files: check_claims() does. Throws as make_model() does.
NamedSlots make_named_slots(const ModelSpec& spec, const ModelPlacement& placement,
                            const CheckpointTensors* files);

}  // namespace attend
