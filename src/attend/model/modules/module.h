// Module: a sublayer with weights. It reads the residual stream by a norm and adds to it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/kernels/fused/operations.h"
#include "attend/model/modules/rope.h"
#include "attend/model/weights/tensor_names.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Activations of one module at a time: each begins anew.
class Scratch {
 public:
  Scratch() = default;
  // memory: bytes on the device, of each width of scratch_widths() of a module for `max_tokens` tokens, each
  // in whole 64 bytes.
  Scratch(const TensorView& memory, int64_t num_tokens, int64_t max_tokens, DType dtype)
      : memory_(memory), num_tokens_(num_tokens), max_tokens_(max_tokens), dtype_(dtype) {}

  void reset() { used_ = 0; }
  // [num_tokens, width], uninitialized.
  TensorView take(int64_t width) { return take(dtype_, num_tokens_, width); }
  // The same of 4 bytes a number, which in 16 bits count as two features.
  TensorView take_wide(DType dtype, int64_t width) { return take(dtype, num_tokens_, width); }
  // [max_tokens, width]: as many rows as a step of the largest size has.
  TensorView take_all_rows(int64_t width) { return take(dtype_, max_tokens_, width); }
  int64_t max_tokens() const { return max_tokens_; }

 private:
  TensorView take(DType dtype, int64_t num_rows, int64_t width);

  TensorView memory_;
  int64_t num_tokens_ = 0, max_tokens_ = 0;
  DType dtype_ = DType::kF32;
  int64_t used_ = 0;  // bytes
};

// One step, as a module sees it.
struct ModuleStep {
  kernels::Residual& residual;
  const ForwardBatch& batch;
  AttentionBackend& attention;
  std::span<const RopeRows> ropes;  // of each rope set
  Scratch& scratch;
  const kernels::OpContext& context;
};

class Module {
 public:
  virtual ~Module() = default;
  // Its weights, in the order of their use. Before the first forward() all are placed.
  virtual void add_slots(SlotWriter& slots) = 0;
  // Features per token of what forward() takes from the scratch.
  virtual std::vector<int64_t> scratch_widths() const = 0;
  // By which it reads the residual stream: known to who adds to it last.
  virtual const kernels::Norm& input_norm() const = 0;
  // Kernel launches only.
  virtual void forward(ModuleStep& step) const = 0;
};

// The module of each alternative of a layer's spec. `cache_layer`: as ModelSpec::cache_layer().
std::unique_ptr<Module> make_mixer(const LayerSpec& layer, int cache_layer, const ModelSpec& model,
                                   const DecoderNames& names);
std::unique_ptr<Module> make_mlp(const LayerSpec& layer, const ModelSpec& model, const DecoderNames& names,
                                 Device device);

}  // namespace attend
