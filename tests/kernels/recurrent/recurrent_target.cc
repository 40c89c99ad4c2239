#include "tests/kernels/recurrent/recurrent_target.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <list>

#include "attend/kernels/recurrent/cpu/recurrent.h"
#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"

namespace attend::kernels::test {
namespace {

using testing_cuda::DeviceArrays;
using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;

int64_t extent(const TensorView& view) {
  int64_t last = 0;
  for (size_t dim = 0; dim < static_cast<size_t>(view.rank); ++dim)
    last += (view.shape[dim] - 1) * view.strides[dim];
  return last + 1;
}

// f32 view in another dtype with the same strides, gaps included.
class Converted {
 public:
  Converted(const TensorView& host, DType dtype) : host_(host), view_(host) {
    bytes_.resize(static_cast<size_t>(extent(host)) * size_of(dtype));
    view_.data = bytes_.data();
    view_.dtype = dtype;
    visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
      for (int64_t i = 0; i < extent(host_); ++i) view_.as<T>()[i] = T(host_.as<const float>()[i]);
    });
  }
  const TensorView& view() const { return view_; }
  void convert_back() const {
    visit_float_dtype(view_.dtype, [&]<class T>(TypeTag<T>) {
      for (int64_t i = 0; i < extent(host_); ++i)
        host_.as<float>()[i] = static_cast<float>(view_.as<const T>()[i]);
    });
  }

 private:
  TensorView host_, view_;
  std::vector<std::byte> bytes_;
};

// Device copies of the tensors of one call.
class GpuCall {
 public:
  explicit GpuCall(DType dtype) : dtype_(dtype), stream_(kGpu), arrays_(stream_.get()) {}

  Stream& stream() { return stream_.get(); }
  TensorView input(const TensorView& host) { return copy(host); }
  TensorView updated(const TensorView& host) {
    const TensorView view = copy(host);
    downloads_.push_back(&copies_.back());
    return view;
  }
  TensorView activation(const TensorView& host) { return copy(convert(host)); }
  TensorView updated_activation(const TensorView& host) {
    const TensorView view = updated(convert(host));
    results_.push_back(&converted_.back());
    return view;
  }
  RecurrentBatch batch(const RecurrentBatch& host) {
    return {.rows = arrays_.view(host.rows),
            .seqlen_kv = arrays_.view(host.seqlen_kv),
            .cu_seqlen_q = arrays_.view(host.cu_seqlen_q),
            .load_slots = arrays_.view(host.load_slots),
            .save_slots = arrays_.view(host.save_slots),
            .batch_invariant = host.batch_invariant};
  }
  // Rows of this width in the activations' dtype, full of NaN.
  TensorView workspace(int64_t num_rows, int64_t width) {
    if (width == 0) return {};
    const Tensor& nans = workspaces_.emplace_back(Tensor::empty({num_rows, width}, dtype_));
    std::memset(nans.view().data, 0xff, nans.view().num_bytes());
    return copy(nans);
  }
  void finish() {
    for (const DeviceCopy* copy : downloads_) copy->download(stream());
    cuda::synchronize(stream());
    for (const Converted* result : results_) result->convert_back();
  }

 private:
  TensorView copy(const TensorView& host) { return copies_.emplace_back(host, stream()).view(); }
  TensorView convert(const TensorView& host) { return converted_.emplace_back(host, dtype_).view(); }

  DType dtype_;
  cuda::OwnedStream stream_;
  DeviceArrays arrays_;
  std::list<Converted> converted_;
  std::list<Tensor> workspaces_;
  std::list<DeviceCopy> copies_;
  std::vector<const DeviceCopy*> downloads_;
  std::vector<const Converted*> results_;
};

template <class Args>
void check_on_cpu(const Args& args) {
  const Stream stream;
  check(args, stream);
}

}  // namespace

std::vector<Target> f32_targets() {
  std::vector<Target> targets;
  for (const cpu::Isa isa : cpu::available_isas()) {
    std::string name(to_string(isa));
    std::erase(name, '-');
    targets.push_back({.name = name, .isa = isa});
  }
  targets.push_back({.name = "gpu", .on_gpu = true});
  return targets;
}

std::vector<Target> half_targets() {
  return {{.name = "gpu_f16", .on_gpu = true, .dtype = DType::kF16},
          {.name = "gpu_bf16", .on_gpu = true, .dtype = DType::kBF16}};
}

void NeedsTarget::SetUp() {
  if (GetParam().on_gpu && cuda::device_count() == 0)
    GTEST_SKIP() << "this machine has no GPU that this build can use";
}

void run(const CausalConvArgs& args, const Target& target) {
  check_on_cpu(args);
  if (!target.on_gpu) return cpu::causal_conv(args, target.isa);
  GpuCall call(target.dtype);
  std::array<TensorView, kMaxConvInputs> inputs;
  for (size_t i = 0; i < args.inputs.size(); ++i) inputs[i] = call.activation(args.inputs[i]);
  causal_conv({.inputs = std::span(inputs).first(args.inputs.size()),
               .weight = call.input(args.weight),
               .bias = call.input(args.bias),
               .silu = args.silu,
               .state = call.updated_activation(args.state),
               .out = call.updated_activation(args.out),
               .batch = call.batch(args.batch)},
              call.stream());
  call.finish();
}

void run(const SelectiveScanArgs& args, const Target& target) {
  check_on_cpu(args);
  if (!target.on_gpu) return cpu::selective_scan(args, target.isa);
  GpuCall call(target.dtype);
  selective_scan({.x = call.activation(args.x),
                  .b = call.activation(args.b),
                  .c = call.activation(args.c),
                  .dt = call.activation(args.dt),
                  .a_log = call.input(args.a_log),
                  .d = call.input(args.d),
                  .dt_bias = call.input(args.dt_bias),
                  .min_step = args.min_step,
                  .max_step = args.max_step,
                  .state = call.updated(args.state),
                  .out = call.updated_activation(args.out),
                  .batch = call.batch(args.batch)},
                 call.stream());
  call.finish();
}

void run(const GatedDeltaArgs& args, const Target& target) {
  check_on_cpu(args);
  if (!target.on_gpu) return cpu::gated_delta_rule(args, target.isa);
  GpuCall call(target.dtype);
  gated_delta_rule({.q = call.activation(args.q),
                    .k = call.activation(args.k),
                    .v = call.activation(args.v),
                    .alpha = call.activation(args.alpha),
                    .beta = call.activation(args.beta),
                    .a_log = call.input(args.a_log),
                    .dt_bias = call.input(args.dt_bias),
                    .beta_scale = args.beta_scale,
                    .lower_bound = args.lower_bound,
                    .state = call.updated(args.state),
                    .out = call.updated_activation(args.out),
                    .batch = call.batch(args.batch),
                    .workspace = call.workspace(
                        args.out.shape[0], gated_delta_workspace_width(args.v.shape[1], args.k.shape[2],
                                                                       args.decays_per_channel(),
                                                                       target.dtype, call.stream().device))},
                   call.stream());
  call.finish();
}

void run(const GatedNormArgs& args, const Target& target) {
  if (!target.on_gpu) return cpu::gated_norm(args, target.isa);
  GpuCall call(target.dtype);
  gated_norm({.x = call.updated_activation(args.x),
              .weight = call.input(args.weight),
              .eps = args.eps,
              .gate = call.activation(args.gate),
              .sigmoid = args.sigmoid},
             call.stream());
  call.finish();
}

void run(const GroupedGatedNormArgs& args, const Target& target) {
  if (!target.on_gpu) return cpu::grouped_gated_norm(args, target.isa);
  GpuCall call(target.dtype);
  grouped_gated_norm({.x = call.updated_activation(args.x),
                      .gate = call.activation(args.gate),
                      .weight = call.input(args.weight),
                      .num_groups = args.num_groups,
                      .eps = args.eps,
                      .order = args.order},
                     call.stream());
  call.finish();
}

void round_elements(const TensorView& view, const Target& target) {
  visit_float_dtype(target.dtype, [&]<class T>(TypeTag<T>) {
    for (float& x : view.span<float>()) x = static_cast<float>(T(x));
  });
}

}  // namespace attend::kernels::test
