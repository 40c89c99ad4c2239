// The first GPU of this machine, called through the public entries.
#include <cstring>
#include <vector>

#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::testing_support {
namespace {

using kernels::LinearArgs;
using kernels::NormRopeArgs;
using kernels::SamplingRule;
using testing_cuda::DeviceArrays;
using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;

// Tensors of one call on the GPU.
class Call {
 public:
  Call() : stream_(kGpu), arrays_(stream_.get()) {}

  Stream& stream() { return stream_.get(); }
  TensorView in(const TensorView& host) {
    if (host.empty()) return {};
    return copies_.emplace_back(host, stream()).view();
  }
  // Registers a result that finish() copies back. Tensors that share memory share the copy.
  TensorView out(const TensorView& host) {
    results_.push_back(copies_.size());
    return in(host);
  }
  template <class T>
  View<const T> array(View<const T> host) {
    return arrays_.view(host);
  }
  void finish() {
    for (const size_t i : results_) copies_[i].download(stream());
    cuda::synchronize(stream());
  }

 private:
  cuda::OwnedStream stream_;
  DeviceArrays arrays_;
  std::vector<DeviceCopy> copies_;
  std::vector<size_t> results_;
};

class GpuTarget : public Target {
 public:
  std::string name() const override { return "gpu"; }
  DType activation_for(DType weight) const override { return weight; }
  std::span<const DType> activations_for_quantized() const override { return kWeightTypes; }
  // Tensor cores truncate addends when they align them.
  double linear_tolerance() const override { return 2e-6; }

  void embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out,
                 float scale) const override {
    Call call;
    kernels::embedding(call.array(ids), call.in(table), call.out(out), call.stream(), scale);
    call.finish();
  }
  void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out,
                float weight_offset) const override {
    Call call;
    const TensorView device_out = call.out(out);
    const TensorView device_x = x.data == out.data ? device_out : call.in(x);
    kernels::rms_norm(device_x, call.in(weight), eps, device_out, call.stream(), weight_offset);
    call.finish();
  }
  void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                    const TensorView& out, float weight_offset) const override {
    Call call;
    const TensorView device_out = call.out(out);
    const TensorView device_x = x.data == out.data ? device_out : call.in(x);
    kernels::add_rms_norm(device_x, call.out(residual), call.in(weight), eps, device_out, call.stream(),
                          weight_offset);
    call.finish();
  }
  void rms_norm_add(const TensorView& x, const TensorView& weight, float eps,
                    const TensorView& residual) const override {
    Call call;
    kernels::rms_norm_add(call.in(x), call.in(weight), eps, call.out(residual), call.stream());
    call.finish();
  }
  void add_embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out) const override {
    Call call;
    kernels::add_embedding(call.array(ids), call.in(table), call.out(out), call.stream());
    call.finish();
  }
  void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                  const TensorView& out) const override {
    Call call;
    const TensorView device_out = call.out(out);
    const TensorView device_x = x.data == out.data ? device_out : call.in(x);
    kernels::layer_norm(device_x, call.in(weight), call.in(bias), eps, device_out, call.stream());
    call.finish();
  }
  void add_layer_norm(const TensorView& x, const TensorView& residual, const TensorView& weight,
                      const TensorView& bias, float eps) const override {
    Call call;
    kernels::add_layer_norm(call.in(x), call.out(residual), call.in(weight), call.in(bias), eps,
                            call.stream());
    call.finish();
  }
  void gelu(const TensorView& x) const override {
    Call call;
    kernels::gelu(call.out(x), call.stream());
    call.finish();
  }
  void gelu_tanh(const TensorView& x) const override {
    Call call;
    kernels::gelu_tanh(call.out(x), call.stream());
    call.finish();
  }
  void relu(const TensorView& x) const override {
    Call call;
    kernels::relu(call.out(x), call.stream());
    call.finish();
  }
  void relu2(const TensorView& x) const override {
    Call call;
    kernels::relu2(call.out(x), call.stream());
    call.finish();
  }
  void silu(const TensorView& x) const override {
    Call call;
    kernels::silu(call.out(x), call.stream());
    call.finish();
  }
  void clamp(const TensorView& x, float limit) const override {
    Call call;
    kernels::clamp(call.out(x), limit, call.stream());
    call.finish();
  }
  void gate_mul(const TensorView& gate, const TensorView& x, kernels::GateFunction function) const override {
    Call call;
    kernels::gate_mul(call.in(gate), call.out(x), call.stream(), function);
    call.finish();
  }
  void scale_by_gate(const TensorView& gate, const TensorView& x,
                     kernels::GateFunction function) const override {
    Call call;
    kernels::scale_by_gate(call.in(gate), call.out(x), call.stream(), function);
    call.finish();
  }
  void copy_heads(const TensorView& x, const TensorView& out) const override {
    Call call;
    kernels::copy_heads(call.in(x), call.out(out), call.stream());
    call.finish();
  }
  void xielu(const TensorView& x, const TensorView& alphas) const override {
    Call call;
    const TensorView both = call.in(alphas);
    kernels::xielu(call.out(x), {.positive = both.slice(0, 0, 1), .negative = both.slice(0, 1, 2)},
                   call.stream());
    call.finish();
  }
  void multiply(const TensorView& factor, const TensorView& x) const override {
    Call call;
    kernels::multiply(call.in(factor), call.out(x), call.stream());
    call.finish();
  }
  void scale(const TensorView& x, float factor) const override {
    Call call;
    kernels::scale(call.out(x), factor, call.stream());
    call.finish();
  }
  void gelu_mul(const TensorView& gate_up, const TensorView& out) const override {
    Call call;
    kernels::gelu_mul(call.in(gate_up), call.out(out), call.stream());
    call.finish();
  }
  void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out) const override {
    Call call;
    kernels::gelu_tanh_mul(call.in(gate_up), call.out(out), call.stream());
    call.finish();
  }
  void soft_cap(const TensorView& x, float cap) const override {
    Call call;
    kernels::soft_cap(call.out(x), cap, call.stream());
    call.finish();
  }
  void silu_mul(const TensorView& gate_up, const TensorView& out) const override {
    Call call;
    kernels::silu_mul(call.in(gate_up), call.out(out), call.stream());
    call.finish();
  }
  void rope(const TensorView& x, View<const int32_t> positions, const TensorView& cos,
            const TensorView& sin) const override {
    Call call;
    kernels::rope(call.out(x), call.array(positions), call.in(cos), call.in(sin), call.stream());
    call.finish();
  }
  void norm_rope(const NormRopeArgs& args) const override {
    Call call;
    NormRopeArgs device = args;
    device.q = call.out(args.q);
    if (!args.k.empty()) device.k = call.out(args.k);
    device.q_norm = call.in(args.q_norm);
    device.k_norm = call.in(args.k_norm);
    device.positions = call.array(args.positions);
    device.cos = call.in(args.cos);
    device.sin = call.in(args.sin);
    kernels::norm_rope(device, call.stream());
    call.finish();
  }
  void scale_by_position(const TensorView& q, View<const int32_t> positions,
                         const kernels::QueryTemperature& temperature) const override {
    Call call;
    kernels::scale_by_position(call.out(q), call.array(positions), temperature, call.stream());
    call.finish();
  }
  void rope_rows_by_length(const kernels::RopeRowsByLengthArgs& args) const override {
    Call call;
    const TensorView rows = call.out(ids_view(args.rows));
    kernels::RopeRowsByLengthArgs device = args;
    device.positions = call.array(args.positions);
    device.cu_seqlen_q = call.array(args.cu_seqlen_q);
    device.prompt_lens = call.array(args.prompt_lens);
    device.rows = rows.span<int32_t>();
    kernels::rope_rows_by_length(device, call.stream());
    call.finish();
  }
  void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out) const override {
    Call call;
    kernels::gather_rows(call.in(x), call.array(rows), call.out(out), call.stream());
    call.finish();
  }
  void linear(const LinearArgs& args) const override {
    Call call;
    const View<std::byte> workspace = workspace_for(args.x, args.weight, call);
    kernels::linear({.x = call.in(args.x),
                     .weight = weight(args.weight, call),
                     .bias = call.in(args.bias),
                     .out = call.out(args.out),
                     .workspace = workspace,
                     .batch_invariant = args.batch_invariant,
                     .norm = in(args.norm, call),
                     .accumulate = args.accumulate},
                    call.stream());
    call.finish();
  }
  void gated_linear(const kernels::GatedLinearArgs& args) const override {
    Call call;
    const View<std::byte> workspace = workspace_for(args.x, args.weight, call);
    kernels::gated_linear({.x = call.in(args.x),
                           .weight = weight(args.weight, call),
                           .bias = call.in(args.bias),
                           .gate_up = call.in(args.gate_up),
                           .out = call.out(args.out),
                           .workspace = workspace,
                           .batch_invariant = args.batch_invariant,
                           .norm = in(args.norm, call)},
                          call.stream());
    call.finish();
  }
  void head_linear(const kernels::HeadLinearArgs& args) const override {
    Call call;
    kernels::head_linear({.x = call.in(args.x), .weight = call.in(args.weight), .out = call.out(args.out)},
                         call.stream());
    call.finish();
  }
  void latent_norm_rope_store(const kernels::LatentNormRopeStoreArgs& args) const override {
    Call call;
    kernels::LatentNormRopeStoreArgs device = args;
    // kv_a and q_rope are columns of one matrix, q_rope first. With two copies, each would overwrite the
    // other's columns with old values.
    const int64_t first =
        (static_cast<const char*>(args.kv_a.data) - static_cast<const char*>(args.q_rope.data)) /
        static_cast<int64_t>(size_of(args.kv_a.dtype));
    const TensorView rows = call.out(TensorView::contiguous(args.q_rope.data, args.kv_a.dtype,
                                                            {args.kv_a.shape[0], args.kv_a.strides[0]}));
    device.kv_a = rows.slice(1, first, first + args.kv_a.shape[1]);
    device.norm = call.in(args.norm);
    device.q_rope =
        rows.slice(1, 0, args.q_rope.shape[1] * args.q_rope.shape[2]).split(1, args.q_rope.shape[2]);
    device.positions = call.array(args.positions);
    if (!args.q_latent.empty()) device.q_latent = call.out(args.q_latent);
    device.cos = call.in(args.cos);
    device.sin = call.in(args.sin);
    device.to.k = call.out(args.to.k);
    device.to.slots = call.array(args.to.slots);
    kernels::latent_norm_rope_store(device, call.stream());
    call.finish();
  }
  void argmax(const TensorView& logits, View<int32_t> ids) const override {
    Call call;
    const TensorView device_ids = call.out(ids_view(ids));
    kernels::argmax(call.in(logits), device_ids.span<int32_t>(), call.stream());
    call.finish();
  }
  void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids) const override {
    Call call;
    const TensorView device_ids = call.out(ids_view(ids));
    kernels::sample(call.in(logits), call.array(rules), device_ids.span<int32_t>(), call.stream());
    call.finish();
  }
  void probabilities(const TensorView& logits, View<const SamplingRule> rules,
                     const TensorView& out) const override {
    Call call;
    kernels::probabilities(call.in(logits), call.array(rules), call.out(out), call.stream());
    call.finish();
  }

 private:
  static Weight weight(const Weight& host, Call& call) {
    Weight device = host;
    device.data = call.in(host.data);
    device.scales = call.in(host.scales);
    device.zeros = call.in(host.zeros);
    device.input_order = call.in(host.input_order);
    return device;
  }
  // Workspace for the fastest kernels, filled with NaN.
  static View<std::byte> workspace_for(const TensorView& x, const Weight& weight, Call& call) {
    const size_t num_bytes = kernels::linear_workspace_bytes(x.shape[0], x.shape[1], kGpu, weight.format);
    const TestTensor workspace({static_cast<int64_t>(num_bytes)}, DType::kU8);
    std::memset(workspace.view().data, 0xff, num_bytes);
    return {static_cast<std::byte*>(call.in(workspace).data), num_bytes};
  }
  static kernels::InputNorm in(const kernels::InputNorm& norm, Call& call) {
    return {.weight = call.in(norm.weight), .eps = norm.eps, .normalized = call.in(norm.normalized)};
  }
  static TensorView ids_view(View<int32_t> ids) {
    return TensorView::contiguous(ids.data(), DType::kI32, {std::ssize(ids)});
  }
};

}  // namespace

std::span<const std::unique_ptr<Target>> targets() {
  static const auto all = [] {
    std::vector<std::unique_ptr<Target>> made;
    if (cuda::device_count() > 0) made.push_back(std::make_unique<GpuTarget>());
    return made;
  }();
  return all;
}

}  // namespace attend::testing_support
