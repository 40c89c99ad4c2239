// Instruction sets of this machine's CPU.
#include <sstream>
#include <vector>

#include "attend/kernels/gemm/cpu/linear.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/sampling/cpu/sampling.h"
#include "tests/kernels/dense/linear_with_workspace.h"
#include "tests/kernels/dense/target.h"

namespace attend::testing_support {
namespace {

using namespace kernels;  // NOLINT: the functions of cpu:: are named as those of the class
using cpu::Isa;

class CpuTarget : public Target {
 public:
  explicit CpuTarget(Isa isa) : isa_(isa) {}

  std::string name() const override { return std::string(cpu::to_string(isa_)); }
  DType activation_for(DType) const override { return DType::kF32; }
  std::span<const DType> activations_for_quantized() const override {
    static constexpr DType kOne[] = {DType::kF32};
    return kOne;
  }
  void scale_by_position(const TensorView& q, View<const int32_t> positions,
                         const kernels::QueryTemperature& temperature) const override {
    Stream stream;
    kernels::scale_by_position(q, positions, temperature, stream);
  }
  // Rounding x or the products to 16 bits would cause errors 100 times larger.
  double linear_tolerance() const override { return 3e-7; }

  void embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out,
                 float scale) const override {
    cpu::embedding(ids, table, out, scale, isa_);
  }
  void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out,
                float weight_offset) const override {
    cpu::rms_norm(x, weight, eps, out, weight_offset, isa_);
  }
  void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                    const TensorView& out, float weight_offset) const override {
    cpu::add_rms_norm(x, residual, weight, eps, out, weight_offset, isa_);
  }
  void rms_norm_add(const TensorView& x, const TensorView& weight, float eps,
                    const TensorView& residual) const override {
    cpu::rms_norm_add(x, weight, eps, residual, isa_);
  }
  void add_embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out) const override {
    cpu::add_embedding(ids, table, out, isa_);
  }
  void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                  const TensorView& out) const override {
    cpu::layer_norm(x, weight, bias, eps, out, isa_);
  }
  void add_layer_norm(const TensorView& x, const TensorView& residual, const TensorView& weight,
                      const TensorView& bias, float eps) const override {
    cpu::add_layer_norm(x, residual, weight, bias, eps, isa_);
  }
  void gelu(const TensorView& x) const override { cpu::gelu(x, isa_); }
  void gelu_tanh(const TensorView& x) const override { cpu::gelu_tanh(x, isa_); }
  void relu(const TensorView& x) const override { cpu::relu(x, isa_); }
  void relu2(const TensorView& x) const override { cpu::relu2(x, isa_); }
  void silu(const TensorView& x) const override { cpu::silu(x, isa_); }
  void clamp(const TensorView& x, float limit) const override { cpu::clamp(x, limit, isa_); }
  void gate_mul(const TensorView& gate, const TensorView& x, GateFunction function) const override {
    cpu::gate_mul(gate, x, function, isa_);
  }
  void scale_by_gate(const TensorView& gate, const TensorView& x, GateFunction function) const override {
    cpu::scale_by_gate(gate, x, function, isa_);
  }
  void copy_heads(const TensorView& x, const TensorView& out) const override { cpu::copy_heads(x, out); }
  void xielu(const TensorView& x, const TensorView& alphas) const override {
    cpu::xielu(x, alphas.as<const float>()[0], alphas.as<const float>()[1]);
  }
  void multiply(const TensorView& factor, const TensorView& x) const override {
    cpu::multiply(factor, x, isa_);
  }
  void scale(const TensorView& x, float factor) const override { cpu::scale(x, factor, isa_); }
  void silu_mul(const TensorView& gate_up, const TensorView& out) const override {
    cpu::silu_mul(gate_up, out, isa_);
  }
  void gelu_mul(const TensorView& gate_up, const TensorView& out) const override {
    cpu::gelu_mul(gate_up, out, isa_);
  }
  void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out) const override {
    cpu::gelu_tanh_mul(gate_up, out, isa_);
  }
  void soft_cap(const TensorView& x, float cap) const override { cpu::soft_cap(x, cap, isa_); }
  void rope(const TensorView& x, View<const int32_t> positions, const TensorView& cos,
            const TensorView& sin) const override {
    cpu::rope(x, positions, cos, sin, /*interleaved=*/false, isa_);
  }
  void norm_rope(const NormRopeArgs& args) const override {
    Stream stream;
    kernels::norm_rope(args, stream);
  }
  void rope_rows_by_length(const RopeRowsByLengthArgs& args) const override {
    Stream stream;
    kernels::rope_rows_by_length(args, stream);
  }
  void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out) const override {
    cpu::gather_rows(x, rows, out, isa_);
  }
  void linear(const LinearArgs& args) const override {
    if (args.norm.weight.empty()) return linear_with_workspace(args, isa_);
    Stream stream;
    kernels::linear(args, stream);
  }
  void gated_linear(const GatedLinearArgs& args) const override {
    Stream stream;
    kernels::gated_linear(args, stream);
  }
  void head_linear(const HeadLinearArgs& args) const override {
    check(args, Stream{});
    cpu::head_linear(args, isa_);
  }
  void latent_norm_rope_store(const LatentNormRopeStoreArgs& args) const override {
    Stream stream;
    kernels::latent_norm_rope_store(args, stream);
  }
  void argmax(const TensorView& logits, View<int32_t> ids) const override { cpu::argmax(logits, ids, isa_); }
  void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids) const override {
    cpu::sample(logits, rules, ids, isa_);
  }
  void probabilities(const TensorView& logits, View<const SamplingRule> rules,
                     const TensorView& out) const override {
    cpu::probabilities(logits, rules, out, isa_);
  }

 private:
  Isa isa_;
};

}  // namespace

std::span<const std::unique_ptr<Target>> targets() {
  static const auto all = [] {
    std::vector<std::unique_ptr<Target>> made;
    for (const Isa isa : cpu::available_isas()) made.push_back(std::make_unique<CpuTarget>(isa));
    return made;
  }();
  return all;
}

}  // namespace attend::testing_support
