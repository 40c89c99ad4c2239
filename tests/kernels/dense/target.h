// Target: an implementation of the dense kernels. The same tests run on every instruction set of the CPU and,
// linked with another list of targets, on the GPU. Tensors and arrays of a call are in host memory.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <span>
#include <string>

#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/kernels/sampling/sampling.h"

namespace attend::testing_support {

class Target {
 public:
  virtual ~Target() = default;
  virtual std::string name() const = 0;
  bool on_gpu() const { return name() == "gpu"; }
  // Dtype of x for weights of dtype `weight`; GPUs require equal dtypes.
  virtual DType activation_for(DType weight) const = 0;
  // Dtypes of x that are supported with quantized weights.
  virtual std::span<const DType> activations_for_quantized() const = 0;
  // Largest error of a sum of products, relative to the sum of their magnitudes.
  virtual double linear_tolerance() const = 0;

  virtual void embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out,
                         float scale = 1.0f) const = 0;
  virtual void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out,
                        float weight_offset) const = 0;
  virtual void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight,
                            float eps, const TensorView& out, float weight_offset) const = 0;
  virtual void rms_norm_add(const TensorView& x, const TensorView& weight, float eps,
                            const TensorView& residual) const = 0;
  virtual void add_embedding(View<const int32_t> ids, const TensorView& table,
                             const TensorView& out) const = 0;
  virtual void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                          const TensorView& out) const = 0;
  virtual void add_layer_norm(const TensorView& x, const TensorView& residual, const TensorView& weight,
                              const TensorView& bias, float eps) const = 0;
  virtual void gelu(const TensorView& x) const = 0;
  virtual void gelu_tanh(const TensorView& x) const = 0;
  virtual void relu(const TensorView& x) const = 0;
  virtual void relu2(const TensorView& x) const = 0;
  virtual void silu(const TensorView& x) const = 0;
  virtual void clamp(const TensorView& x, float limit) const = 0;
  virtual void gate_mul(const TensorView& gate, const TensorView& x,
                        kernels::GateFunction function) const = 0;
  virtual void scale_by_gate(const TensorView& gate, const TensorView& x,
                             kernels::GateFunction function) const = 0;
  virtual void copy_heads(const TensorView& x, const TensorView& out) const = 0;
  // alphas: f32 [2], positive and negative.
  virtual void xielu(const TensorView& x, const TensorView& alphas) const = 0;
  virtual void multiply(const TensorView& factor, const TensorView& x) const = 0;
  virtual void scale(const TensorView& x, float factor) const = 0;
  virtual void silu_mul(const TensorView& gate_up, const TensorView& out) const = 0;
  virtual void gelu_mul(const TensorView& gate_up, const TensorView& out) const = 0;
  virtual void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out) const = 0;
  virtual void soft_cap(const TensorView& x, float cap) const = 0;
  virtual void rope(const TensorView& x, View<const int32_t> positions, const TensorView& cos,
                    const TensorView& sin) const = 0;
  virtual void norm_rope(const kernels::NormRopeArgs& args) const = 0;
  virtual void scale_by_position(const TensorView& q, View<const int32_t> positions,
                                 const kernels::QueryTemperature& temperature) const = 0;
  virtual void rope_rows_by_length(const kernels::RopeRowsByLengthArgs& args) const = 0;
  virtual void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out) const = 0;
  virtual void linear(const kernels::LinearArgs& args) const = 0;
  virtual void gated_linear(const kernels::GatedLinearArgs& args) const = 0;
  virtual void head_linear(const kernels::HeadLinearArgs& args) const = 0;
  virtual void latent_norm_rope_store(const kernels::LatentNormRopeStoreArgs& args) const = 0;
  virtual void argmax(const TensorView& logits, View<int32_t> ids) const = 0;
  virtual void sample(const TensorView& logits, View<const kernels::SamplingRule> rules,
                      View<int32_t> ids) const = 0;
  virtual void probabilities(const TensorView& logits, View<const kernels::SamplingRule> rules,
                             const TensorView& out) const = 0;
};

// Targets of this executable, the best one last; empty if this machine supports none. Each executable links
// one definition.
std::span<const std::unique_ptr<Target>> targets();

class NeedsTarget : public testing::Test {
 protected:
  void SetUp() override {
    if (targets().empty()) GTEST_SKIP() << "this machine has no GPU that this build can use";
  }
};

inline std::ostream& operator<<(std::ostream& out, const Target& target) { return out << target.name(); }

}  // namespace attend::testing_support
