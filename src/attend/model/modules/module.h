// Module: a sublayer with weights. It reads the residual stream through a norm and adds its output to it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "attend/kv/state/state_pool.h"
#include "attend/model/modules/rope.h"
#include "attend/model/weights/tensor_names.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Memory for the activations of one module at a time. Every module starts with reset().
class Scratch {
 public:
  Scratch() = default;
  // memory: bytes on the device for all scratch_widths() of a module with `max_tokens` tokens, each rounded
  // up to 64 bytes.
  Scratch(const TensorView& memory, int64_t num_tokens, int64_t max_tokens, DType dtype)
      : memory_(memory), num_tokens_(num_tokens), max_tokens_(max_tokens), dtype_(dtype) {}

  void reset() { used_ = 0; }
  // Allocates [num_tokens, width], uninitialized.
  TensorView take(int64_t width) { return take(dtype_, num_tokens_, width); }
  // Same for a dtype of 4 bytes. Each number counts as two features in scratch_widths().
  TensorView take_wide(DType dtype, int64_t width) { return take(dtype, num_tokens_, width); }
  // Allocates [max_tokens, width]: the rows of the largest step.
  TensorView take_all_rows(int64_t width) { return take(dtype_, max_tokens_, width); }
  int64_t max_tokens() const { return max_tokens_; }

 private:
  TensorView take(DType dtype, int64_t num_rows, int64_t width);

  TensorView memory_;
  int64_t num_tokens_ = 0, max_tokens_ = 0;
  DType dtype_ = DType::kF32;
  int64_t used_ = 0;  // bytes
};

// Inputs of a module for one step.
struct ModuleStep {
  kernels::Residual& residual;
  const ForwardBatch& batch;
  AttentionBackend& attention;
  std::span<const RopeRows> ropes;  // one per rope set
  Scratch& scratch;
  const kernels::OpContext& context;
  TensorView layer_embeddings = {};   // [num_tokens, num_layers * size], if the model has them
  const StatePool* states = nullptr;  // null: the model has no recurrent states
  kernels::RecurrentBatch recurrent = {};
  // Recurrent layers copy their inputs of these tokens to the first rows of `kept`, for replay().
  View<const int32_t> verified_tokens = {};
  TensorView kept = {};  // [BatchLimits::max_verified_tokens(), kept_width()]
  // Draft heads with DraftJoin::kAttention: input of layer 0's attention, [num_tokens, joined_size].
  TensorView joined = {};
};

// Inputs of Module::replay().
struct ReplayStep {
  TensorView kept;  // [num_tokens, kept_width()]
  Scratch& scratch;
  Stream& stream;
  const StatePool& states;
  kernels::RecurrentBatch batch;
};

class Module {
 public:
  virtual ~Module() = default;
  // Adds the module's weights in order of use. All are set before the first forward().
  virtual void add_slots(SlotWriter& slots) = 0;
  // Features per token of each scratch allocation in forward().
  virtual std::vector<int64_t> scratch_widths() const = 0;
  // True: all linear layers apply the adapters of a step (OpContext::adapters).
  virtual bool takes_adapters() const { return false; }
  // Norm with which the module reads the residual stream. The previous module fuses it into its last kernel.
  virtual const kernels::Norm& input_norm() const = 0;
  // Launches kernels, without allocation or synchronization.
  virtual void forward(ModuleStep& step) const = 0;

  // Recurrent layers: features of a token's input of the recurrence; others: 0.
  virtual int64_t kept_width() const { return 0; }
  // Steps the states through inputs that forward() kept.
  virtual void replay(ReplayStep& /*step*/) const {}
};

// Copies the rows of the step's verified tokens to `step.kept`.
void keep_inputs(const TensorView& rows, const ModuleStep& step);

// Returns a norm of the residual stream without weights, or no norm.
kernels::Norm make_norm(bool exists, const ModelSpec& model);

// Same for the norm after a sublayer.
kernels::Norm make_post_norm(bool exists, const ModelSpec& model);

// Throws Error(kUnsupported) unless a recurrent layer has one norm, before it.
void require_norm_before(const NormPlacement& norms, const ModelSpec& model);

// Index of a layer among those with K/V, and among those with a recurrent state: ModelSpec::cache_layer() and
// state_layer().
struct LayerIndices {
  int cache = 0, state = 0;
};

// Create the modules of a layer; null: the layer has no such sublayer. `dtype`: of activations.
std::unique_ptr<Module> make_mixer(const LayerSpec& layer, const LayerIndices& indices,
                                   const ModelSpec& model, const DecoderNames& names, Device device,
                                   DType dtype);
std::unique_ptr<Module> make_mlp(const LayerSpec& layer, const ModelSpec& model, const DecoderNames& names,
                                 Device device);

}  // namespace attend
