// LoadableModel: a model before its weights are loaded.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/adapters/adapter_layers.h"
#include "attend/model/architectures/architecture.h"
#include "attend/model/model.h"
#include "attend/model/weights/load_weights.h"

namespace attend {

class LoadableModel : public Model {
 public:
  // Returns all weights in order of use. Slots point into the model.
  virtual std::vector<WeightSlot> weight_slots() = 0;
  // Stores the memory of the weights, after all slots are set.
  virtual void adopt(LoadedWeights weights) = 0;
  // Sets head_tokens(), in memory of the model's device.
  virtual void set_head_tokens(Tensor tokens) = 0;
  // Bytes that prepare() allocates. A double, since it may not fit a size_t.
  virtual double prepared_bytes(const BatchLimits& limits) = 0;

  const AdapterLayers* adapter_layers() const override { return &adapter_layers_; }
  // Layers of the loaded slots.
  void set_adapter_layers(AdapterLayers layers) { adapter_layers_ = std::move(layers); }

 private:
  AdapterLayers adapter_layers_;
};

// Creates the model of a spec, on one rank of placement.num_ranks. `own_head`: lm_head has its own weights.
// Throws Error(kUnsupported) for an unknown architecture.
std::unique_ptr<LoadableModel> make_model(const ModelSpec& spec, const ModelPlacement& placement,
                                          bool own_head);

// Same as load_model() in model.h, for open tensors; nullptr: random weights.
std::unique_ptr<Model> load_model(std::shared_ptr<const CheckpointTensors> files, const ModelSpec& spec,
                                  const LoadProgress& progress, const ModelPlacement& placement);

// Slots of a model with the tensor names of its files.
struct NamedSlots {
  std::unique_ptr<LoadableModel> model;  // target of the slots
  std::vector<WeightSlot> slots;
  WeightPrefixes prefixes = {};  // find_prefixes() of the files
};

// Returns slots as the rank of `placement` loads them (shard()). With `files`, parts have the names and
// storage of the files, and the model has its own head if the files have one; nullptr: no files. Does not
// check tensors (see check_unused_tensors()). Throws as make_model() and shard() do.
NamedSlots make_named_slots(const ModelSpec& spec, const ModelPlacement& placement,
                            const CheckpointTensors* files);

// Returns the name, without ".weight", of the matrix that computes logits: lm_head, or the embedding if the
// files have no head.
std::string head_name(const ModelSpec& spec, const CheckpointTensors& files);

}  // namespace attend
