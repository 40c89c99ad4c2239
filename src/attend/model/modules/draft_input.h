// DraftInput: embeddings and hidden states become the residual stream of a draft head (DraftSpec).
#pragma once

#include <string>
#include <vector>

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Rows of a step, on the device.
struct DraftRows {
  View<const int32_t> token_ids, positions;  // [num_tokens]
  TensorView hidden_states;                  // [num_tokens, width], as in ModelInput
  HiddenSource source = HiddenSource::kTarget;
};

class DraftInput {
 public:
  // `model`: spec with a draft. Both arguments must outlive this object.
  DraftInput(const ModelSpec& model, const DecoderNames& names);

  // Adds the weights, with full tensor names.
  void add_slots(SlotWriter& slots);
  // Features per token of each allocation of forward() in `memory`.
  std::vector<int64_t> memory_widths() const;

  // Writes the residual stream. `embedding`: table of the tokens. Returns the input of layer 0's attention,
  // in `memory`; empty with DraftJoin::kProjection. Throws Error(kInvalidArgument) for hidden states of
  // another shape.
  TensorView forward(const DraftRows& rows, const Weight& embedding, Scratch& memory,
                     kernels::Residual& residual, const kernels::OpContext& context) const;

 private:
  // Applies a norm, or copies without one.
  void read(const TensorView& x, const kernels::Norm& norm, const TensorView& out, Stream& stream) const;
  // Writes W x.
  void project(const TensorView& x, const TensorView& out, const kernels::OpContext& context) const;
  // Returns the input of the matrix for hidden states of the target: `hidden`, or its norms in `memory`.
  TensorView normed_states(const TensorView& hidden, Scratch& memory, Stream& stream) const;

  const ModelSpec& model_;
  const DraftSpec& spec_;
  const DecoderNames& names_;
  kernels::Norm embedding_norm_, hidden_norm_;
  std::vector<kernels::Norm> state_norms_;  // one per state, or one over all of them
  std::vector<Linear> projection_;
};

// Full name of a weight of a draft: names that begin with a dot belong to layer 0.
std::string draft_weight_name(std::string_view name, const ModelSpec& model, const DecoderNames& names);
// Prefix of the names in layer `layer`: "model.layers.0.".
std::string layer_prefix(int layer, const ModelSpec& model, const DecoderNames& names);

}  // namespace attend
