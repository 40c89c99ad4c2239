// AdapterLayers: the linear layers of a model that adapters (LoRA) may change.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/model/architectures/architecture.h"
#include "attend/model/config/model_placement.h"
#include "attend/model/weights/weight_slot.h"
#include "attend/tensor/device.h"
#include "attend/tensor/dtype.h"

namespace attend {

// Consecutive outputs of a layer that are rows of one module of the checkpoint.
struct AdapterPart {
  struct Rows {
    int64_t first, count;
  };
  std::string module;      // "model.layers.0.self_attn.q_proj", as in the checkpoint
  int64_t first_out = 0;   // of the layer
  std::vector<Rows> rows;  // of the module, in the order of the outputs

  int64_t num_outputs() const;
};

// One of several ranks has some rows or columns of a module.
struct AdapterLayer {
  std::vector<AdapterPart> parts;
  int64_t first_column = 0, num_columns = 0;
};

class AdapterLayers {
 public:
  // Shape of a module on all ranks.
  struct Module {
    int64_t out_features = 0, in_features = 0;
  };

  AdapterLayers() = default;
  // Numbers the layers of loaded slots: sets Linear::adapter_index. `stored`: prefixes of names in the files,
  // one of architecture.prefixes or none. `placement`: adapters are in the memory of its device; on a GPU in
  // its dtype.
  AdapterLayers(std::span<const WeightSlot> slots, const ModelArchitecture& architecture,
                WeightPrefixes stored, const ModelPlacement& placement);

  Device device() const { return device_; }
  DType dtype() const { return dtype_; }  // GPUs
  // By Linear::adapter_index.
  const std::vector<AdapterLayer>& layers() const { return layers_; }
  const std::unordered_map<std::string, Module>& modules() const { return modules_; }
  // Returns the module's name in the checkpoint for its name in PEFT, which is that of transformers' module
  // and may follow another of the architecture's naming schemes. No value: adapters change no such module.
  std::optional<std::string> find(const std::string& peft_name) const;
  // Returns whether the model has a linear layer of this name that adapters do not change.
  bool is_fixed(const std::string& peft_name) const;

 private:
  std::vector<std::string> possible_names(const std::string& peft_name) const;

  Device device_;
  DType dtype_ = DType::kF32;
  std::vector<AdapterLayer> layers_;
  std::unordered_map<std::string, Module> modules_;  // by name in the checkpoint
  std::vector<std::string> fixed_;
  std::vector<WeightPrefixes> schemes_;
  WeightPrefixes stored_;
};

}  // namespace attend
