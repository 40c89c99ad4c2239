// Module: a sublayer with weights. It reads the residual stream by a norm and adds to it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/kernels/fused/residual.h"
#include "attend/model/rope.h"
#include "attend/model/weight_slot.h"

namespace attend {

// Activations of one module at a time: each begins anew.
class Scratch {
 public:
  Scratch() = default;
  // Bytes that modules of these widths (features per token) take for so many tokens.
  static size_t num_bytes(std::span<const int64_t> widths, int64_t num_tokens, DType dtype);

  // memory: bytes on the device, of num_bytes() of the largest module.
  Scratch(const TensorView& memory, int64_t num_tokens, DType dtype)
      : memory_(memory), num_tokens_(num_tokens), dtype_(dtype) {}

  void reset() { used_ = 0; }
  // [num_tokens, width], uninitialised.
  TensorView take(int64_t width);

 private:
  TensorView memory_;
  int64_t num_tokens_ = 0;
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

}  // namespace attend
