// Matches the tensors of a checkpoint with the slots of a model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/weights/tensor_names.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Finds the prefixes of tensor names in the checkpoint: the first of `known` with which the files have the
// embedding, or names.scheme. Returns an empty span if names are as in `names`.
WeightPrefixes find_prefixes(const DecoderNames& names, std::span<const WeightPrefixes> known,
                             const CheckpointTensors& files);
// Returns the tensor's name in a checkpoint with these prefixes.
std::string stored_name(std::string_view name, WeightPrefixes prefixes);

// Compares the checkpoint's tensors with the slots, which have its names. If tensors are missing, throws
// Error(kNotFound) with the first one and their number. If no slot uses a tensor inside the model's layers,
// throws Error(kCorruptFile) with file, tensor and the expected tensors, since ignoring it would change
// results. Other unused tensors are logged as one warning.
struct UnusedTensorRules {
  std::string layers;                           // prefix of the names of layers
  bool predicts_more_tokens = false;            // layers after the last one are not errors
  std::vector<std::string_view> encoders = {};  // prefixes of tensors that an encoder loads
  // Prefixes of tensors that a draft reads: no warning.
  std::vector<std::string> read_elsewhere = {};
};
void check_unused_tensors(std::span<const WeightSlot> slots, const CheckpointTensors& files,
                          const ModelSpec& spec, const UnusedTensorRules& rules);

// Same for a draft head. In its own files, every other tensor is an error, except those that only training
// uses and copies of the target's vocabulary; in the target's files, every other tensor of `layer`, the
// prefix of the draft's layer 0.
void check_draft_tensors(std::span<const WeightSlot> slots, const CheckpointTensors& files,
                         const ModelSpec& spec, const std::string& layer);

}  // namespace attend
