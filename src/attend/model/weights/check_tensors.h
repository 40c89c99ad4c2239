// Which tensors of a checkpoint are a model's.
#pragma once

#include <span>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/weights/tensor_names.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// How the checkpoint's names of a model's tensors begin: the first of `known` by which its embedding is
// there. Empty: as `names` has them.
WeightPrefixes find_prefixes(const DecoderNames& names, std::span<const WeightPrefixes> known,
                             const CheckpointTensors& files);
// A tensor's name in that checkpoint.
std::string stored_name(std::string_view name, WeightPrefixes prefixes);

// Holds the checkpoint's tensors and the slots, which have its names, against each other. Throws
// Error(kNotFound) naming a tensor that is missing, and of how many; Error(kCorruptFile) naming file and
// tensor for one inside the model's layers that no slot asks for, since the results without it would be
// another model's, with what is expected. What else the checkpoint holds (a vision tower, or, where
// `predicts_more_tokens`, layers behind the last) is logged as one warning. `layers`: how names of layers
// begin.
void check_unused_tensors(std::span<const WeightSlot> slots, const CheckpointTensors& files,
                          const ModelSpec& spec, const std::string& layers, bool predicts_more_tokens);

}  // namespace attend
