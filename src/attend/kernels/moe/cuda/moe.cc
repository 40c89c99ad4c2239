#include "attend/kernels/moe/cuda/moe.h"

#include <algorithm>
#include <sstream>

#include "attend/base/error.h"
#include "attend/kernels/common/cuda/device_rows.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/moe/scratch.h"

namespace attend::kernels::cuda {
namespace {

// From so many rows for each expert on, in the mean, tiles of many rows read the weights less often than they
// multiply rows that are not there.
constexpr int64_t kRowsPerExpertOfLargeTiles = 32;
constexpr int64_t kAlignedElements = 8;  // elements that an aligned copy moves

struct GroupedKernel {
  const char* name;
  int tile_rows;
  bool on_tensor_cores;
};

GroupedKernel choose(const MoeExpertsArgs& args) {
  const MoeShape& shape = args.shape;
  const bool aligned = shape.hidden_size % kAlignedElements == 0 &&
                       shape.intermediate_size % kAlignedElements == 0 &&
                       rows_aligned({&args.x, &args.linears.gate_up.front().weight.data,
                                     &args.linears.down.front().weight.data});
  if (args.x.dtype == DType::kF32 || !aligned)
    return {.name = "naive grouped GEMM", .tile_rows = kNaiveTileRows, .on_tensor_cores = false};
  const bool many = args.x.shape[0] * shape.top_k >= kRowsPerExpertOfLargeTiles * shape.num_experts;
  return {.name = many ? "grouped GEMM of 64 rows" : "grouped GEMM of 16 rows",
          .tile_rows = many ? kLargeTileRows : kSmallTileRows,
          .on_tensor_cores = true};
}

void record(const MoeExpertsArgs& args, const GroupedKernel& kernel) {
  std::ostringstream text;
  text << args.x.shape[0] << " tokens x " << args.shape.top_k << " of " << args.shape.num_experts
       << " experts, " << args.shape.hidden_size << " -> " << args.shape.intermediate_size << ", "
       << args.x.dtype;
  record_choice({.op = "moe_experts",
                 .problem = text.str(),
                 .kernel = kernel.name,
                 .why = kernel.on_tensor_cores ? "rows for each expert in the mean"
                                               : "float32, or rows that 16 bytes do not divide"});
}

void multiply(const GroupedGemmParams& params, const GroupedKernel& kernel, DType dtype, Stream& stream) {
  if (!kernel.on_tensor_cores) return launch_naive_grouped_gemm(params, element_of(dtype), stream.handle);
  const auto launch = dtype == DType::kBF16 ? launch_grouped_gemm_bf16 : launch_grouped_gemm_f16;
  launch(params, kernel.tile_rows, stream.handle);
}

}  // namespace

void route(const RouteArgs& args, Stream& stream) {
  launch_route({.logits = args.logits.as<const float>(),
                .experts = args.experts.as<int32_t>(),
                .weights = args.weights.as<float>(),
                .num_tokens = static_cast<int32_t>(args.logits.shape[0]),
                .num_experts = static_cast<int32_t>(args.logits.shape[1]),
                .top_k = static_cast<int32_t>(args.experts.shape[1]),
                .num_groups = static_cast<int32_t>(args.rule.groups.num_groups),
                .top_groups = static_cast<int32_t>(args.rule.groups.top_groups),
                .correction = args.correction.empty() ? nullptr : args.correction.as<const float>(),
                .scale = args.rule.scale,
                .of_all = args.rule.weights_of == RouterWeights::kOfAll,
                .sigmoid = args.rule.scores == RouterScores::kSigmoid},
               stream.handle);
}

void moe_experts(const MoeExpertsArgs& args, Stream& stream) {
  const MoeShape& shape = args.shape;
  for (const auto* linears : {&args.linears.gate_up, &args.linears.down})
    if (linears->front().weight.data.dtype != args.x.dtype)
      fail(ErrorCode::kUnsupported, "experts ", linears->front().weight, ": expected the dtype of x, ",
           args.x.dtype);
  const GroupedKernel kernel = choose(args);
  if (records_choices()) record(args, kernel);
  ScratchPieces pieces(args.scratch, stream.device);
  const ExpertScratch scratch(shape, args.x.shape[0], args.x.dtype, pieces);
  const int64_t num_pairs = args.x.shape[0] * shape.top_k;
  int32_t* const first_row = scratch.offsets[0].as<int32_t>();
  int32_t* const first_tile = scratch.offsets[1].as<int32_t>();
  launch_sort_pairs({.experts = args.experts.as<const int32_t>(),
                     .row_of_pair = scratch.row_of_pair.as<int32_t>(),
                     .token_of_row = scratch.token_of_row.as<int32_t>(),
                     .first_row = first_row,
                     .first_tile = first_tile,
                     .num_pairs = static_cast<int32_t>(num_pairs),
                     .num_experts = static_cast<int32_t>(shape.num_experts),
                     .top_k = static_cast<int32_t>(shape.top_k),
                     .tile_rows = kernel.tile_rows},
                    stream.handle);
  // The most tiles that so many pairs can have: every expert's last one may be short.
  const int64_t num_touched = std::min(num_pairs, shape.num_experts);
  const int64_t num_tiles = num_touched + (num_pairs - num_touched) / kernel.tile_rows;
  const GroupedGemmParams gate_up{.x = args.x.data,
                                  .x_stride = shape.hidden_size,
                                  .token_of_row = scratch.token_of_row.as<const int32_t>(),
                                  .weight = args.linears.gate_up.front().weight.data.data,
                                  .out = scratch.inner.data,
                                  .first_row = first_row,
                                  .first_tile = first_tile,
                                  .num_experts = static_cast<int32_t>(shape.num_experts),
                                  .in_features = static_cast<int32_t>(shape.hidden_size),
                                  .out_features = static_cast<int32_t>(shape.intermediate_size),
                                  .gated = true,
                                  .num_tiles = static_cast<int32_t>(num_tiles)};
  multiply(gate_up, kernel, args.x.dtype, stream);
  GroupedGemmParams down = gate_up;
  down.x = scratch.inner.data;
  down.x_stride = shape.intermediate_size;
  down.token_of_row = nullptr;
  down.weight = args.linears.down.front().weight.data.data;
  down.out = scratch.rows.data;
  down.in_features = static_cast<int32_t>(shape.intermediate_size);
  down.out_features = static_cast<int32_t>(shape.hidden_size);
  down.gated = false;
  multiply(down, kernel, args.x.dtype, stream);
  launch_combine({.rows = scratch.rows.data,
                  .row_of_pair = scratch.row_of_pair.as<const int32_t>(),
                  .weights = args.weights.as<const float>(),
                  .out = args.out.data,
                  .num_tokens = static_cast<int32_t>(args.x.shape[0]),
                  .top_k = static_cast<int32_t>(shape.top_k),
                  .hidden_size = static_cast<int32_t>(shape.hidden_size),
                  .element = element_of(args.x.dtype),
                  .accumulate = args.accumulate},
                 stream.handle);
}

}  // namespace attend::kernels::cuda
