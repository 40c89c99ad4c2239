#include <limits>
#include <string_view>
#include <utility>

#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/recurrent/cuda/common/scan_kernels.h"
#include "attend/kernels/recurrent/cuda/recurrent.h"
#include "attend/kernels/recurrent/cuda/sm80/scan_chunks_kernel.h"
#include "attend/kernels/recurrent/recurrent.h"

namespace attend::kernels::cuda {
namespace {

ScanParams scan_params(const SelectiveScanArgs& args) {
  return {.x = token_rows(args.x),
          .b = token_rows(args.b),
          .c = token_rows(args.c),
          .out = out_rows(args.out),
          .dt = args.dt.data,
          .dt_stride = args.dt.strides[0],
          .a_log = args.a_log.as<const float>(),
          .d = args.d.as<const float>(),
          .dt_bias = args.dt_bias.as<const float>(),
          .state = args.state.as<float>(),
          .batch = step_batch(args.batch, args.out.shape[0]),
          .min_step = args.min_step,
          .max_step = args.max_step,
          .num_heads = static_cast<int32_t>(args.x.shape[1]),
          .heads_per_group = static_cast<int32_t>(args.x.shape[1] / args.b.shape[1]),
          .head_dim = static_cast<int32_t>(args.x.shape[2]),
          .state_dim = static_cast<int32_t>(args.b.shape[2]),
          .max_tokens = std::numeric_limits<int32_t>::max(),
          .element = to_element_type(args.out.dtype),
          .aligned = rows_aligned({&args.b, &args.c, &args.state})};
}

bool supports_chunks(const SelectiveScanArgs& args, const ScanParams& params) {
  const bool has_instance = params.state_dim == 64 || params.state_dim == 128 || params.state_dim == 256;
  if (current_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) <
      sm80::scan_chunks_shared_bytes(params.state_dim, sm80::kNarrowSlice, 2))
    return false;
  return params.element != Element::kF32 && params.aligned && has_instance && params.head_dim % 8 == 0 &&
         rows_aligned({&args.x, &args.out});
}

}  // namespace

void selective_scan(const SelectiveScanArgs& args, Stream& stream) {
  for (const auto& [name, view] : {std::pair<std::string_view, const TensorView*>{"x", &args.x},
                                   {"b", &args.b},
                                   {"c", &args.c},
                                   {"dt", &args.dt}})
    require_dtype(name, *view, args.out.dtype);
  ScanParams params = scan_params(args);
  // Decoded tokens remain in the recurrence in steps with prompts too.
  constexpr int32_t kMaxStepTokens = 16;
  if (!args.batch.batch_invariant && args.out.shape[0] - args.batch.num_reqs() + 1 > kMaxStepTokens &&
      supports_chunks(args, params)) {
    params.max_tokens = kMaxStepTokens;
    const auto launch =
        params.element == Element::kBF16 ? sm80::launch_scan_chunks_bf16 : sm80::launch_scan_chunks_f16;
    launch(params, stream.handle);
  }
  launch_scan_step(params, stream.handle);
}

void grouped_gated_norm(const GroupedGatedNormArgs& args, Stream& stream) {
  constexpr int64_t kGroup = 8;  // elements per aligned access
  const int64_t dim = args.x.shape[1] / args.num_groups;
  if (args.x.num_elements() == 0) return;
  const TensorView x = args.x.split(1, dim), gate = args.gate.split(1, dim);
  const bool has_weight = args.order != GateOrder::kGateOnly;
  const TensorView weight = has_weight ? args.weight.split(0, dim) : TensorView();
  launch_grouped_gated_norm({.x = device_rows(x),
                             .gate = device_rows(gate),
                             .weight = device_rows(has_weight ? weight.split(0, args.num_groups) : weight),
                             .eps = args.eps,
                             .num_rows = static_cast<int32_t>(args.x.shape[0] * args.num_groups),
                             .num_groups = static_cast<int32_t>(args.num_groups),
                             .dim = static_cast<int32_t>(dim),
                             .order = args.order,
                             .aligned = dim % kGroup == 0 && rows_aligned({&x, &gate, &weight})},
                            stream.handle);
}

}  // namespace attend::kernels::cuda
