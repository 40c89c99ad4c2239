#include "attend/kernels/moe/cuda/moe.h"

#include <algorithm>
#include <sstream>

#include "attend/base/error.h"
#include "attend/kernels/common/cuda/device_rows.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/kernels/gemm/cuda/sm80/quantised_gemm_kernel.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/moe/scratch.h"

namespace attend::kernels::cuda {
namespace {

// From so many rows for each expert on, in the mean, tiles of many rows read the weights less often than they
// multiply rows that are not there.
constexpr int64_t kRowsPerExpertOfLargeTiles = 32;
constexpr int64_t kAlignedElements = 8;  // elements that an aligned copy moves

struct GroupedKernel {
  std::string name;
  int tile_rows;
  bool on_tensor_cores;
};

// Whether tensor cores take a weight of experts, beside x of 16 bits.
bool fits_tensor_cores(const Weight& weight) {
  const bool fp8 = weight.format == WeightFormat::kFp8;
  const int64_t inputs_of_16_bytes = has_four_bits(weight.format) ? 32 : fp8 ? 16 : kAlignedElements;
  const bool whole_blocks =
      !fp8 || weight.group_ins >= weight.in_features() || weight.group_ins % kFp8BlockInputs == 0;
  return weight.in_features() % inputs_of_16_bytes == 0 && whole_blocks && rows_aligned({&weight.data});
}

GroupedKernel choose(const MoeExpertsArgs& args) {
  const MoeShape& shape = args.shape;
  const Weight &gate_up = args.linears.gate_up.front().weight, &down = args.linears.down.front().weight;
  const bool aligned = shape.hidden_size % kAlignedElements == 0 &&
                       shape.intermediate_size % kAlignedElements == 0 && rows_aligned({&args.x});
  if (args.x.dtype == DType::kF32 || !aligned || !fits_tensor_cores(gate_up) || !fits_tensor_cores(down))
    return {.name = "naive grouped GEMM", .tile_rows = kNaiveTileRows, .on_tensor_cores = false};
  const bool many = args.x.shape[0] * shape.top_k >= kRowsPerExpertOfLargeTiles * shape.num_experts;
  const bool plain = gate_up.format == WeightFormat::kPlain;
  return {.name = std::string(plain ? "grouped GEMM of " : "quantised grouped GEMM of ") +
                  (many ? "64 rows" : "16 rows"),
          .tile_rows = many ? kLargeTileRows : kSmallTileRows,
          .on_tensor_cores = true};
}

void record(const MoeExpertsArgs& args, const GroupedKernel& kernel) {
  std::ostringstream text;
  text << args.x.shape[0] << " tokens x " << args.shape.top_k << " of " << args.shape.num_experts
       << " experts, " << args.shape.hidden_size << " -> " << args.shape.intermediate_size << ", "
       << args.x.dtype << ", weights in " << describe_elements(args.linears.down.front().weight);
  record_choice({.op = "moe_experts",
                 .problem = text.str(),
                 .kernel = kernel.name,
                 .why = kernel.on_tensor_cores ? "rows for each expert in the mean"
                                               : "float32, rows that 16 bytes do not divide, or groups that "
                                                 "64 inputs of fp8 do not"});
}

void multiply(const GroupedGemmParams& params, const GroupedKernel& kernel, DType dtype, Stream& stream) {
  if (!kernel.on_tensor_cores) return launch_naive_grouped_gemm(params, element_of(dtype), stream.handle);
  const bool bf16 = dtype == DType::kBF16;
  const auto launch = params.weight.format == WeightFormat::kPlain
                          ? (bf16 ? launch_grouped_gemm_bf16 : launch_grouped_gemm_f16)
                          : (bf16 ? launch_quantised_grouped_gemm_bf16 : launch_quantised_grouped_gemm_f16);
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
  const Linear &gate_ups = args.linears.gate_up.front(), &downs = args.linears.down.front();
  for (const Linear* linear : {&gate_ups, &downs})
    if (linear->weight.format == WeightFormat::kPlain && linear->weight.data.dtype != args.x.dtype)
      fail(ErrorCode::kUnsupported, "experts ", linear->weight, ": expected the dtype of x, ", args.x.dtype);
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
                     .pair_of_row = scratch.segments.as<int32_t>(),
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
  const bool clamped = args.gate.activation == ExpertActivation::kClampedSwiglu;
  const auto* const weights = args.weights.as<const float>();
  const GroupedGemmParams gate_up{.x = args.x.data,
                                  .x_stride = shape.hidden_size,
                                  .token_of_row = scratch.token_of_row.as<const int32_t>(),
                                  .weight = quantised_weight(gate_ups.weight),
                                  .out = scratch.inner.data,
                                  .first_row = first_row,
                                  .first_tile = first_tile,
                                  .num_experts = static_cast<int32_t>(shape.num_experts),
                                  .in_features = static_cast<int32_t>(shape.hidden_size),
                                  .out_features = static_cast<int32_t>(shape.intermediate_size),
                                  .gated = true,
                                  .alternating = clamped,
                                  .num_tiles = static_cast<int32_t>(num_tiles),
                                  .epilogue = {.bias = device_vector(gate_ups.bias),
                                               .input_weights = args.weights_scale_input ? weights : nullptr,
                                               .pair_of_row = scratch.segments.as<const int32_t>(),
                                               .clamped = clamped,
                                               .limit = args.gate.limit,
                                               .alpha = args.gate.alpha}};
  multiply(gate_up, kernel, args.x.dtype, stream);
  GroupedGemmParams down = gate_up;
  down.x = scratch.inner.data;
  down.x_stride = shape.intermediate_size;
  down.token_of_row = nullptr;
  down.weight = quantised_weight(downs.weight);
  down.out = scratch.rows.data;
  down.in_features = static_cast<int32_t>(shape.intermediate_size);
  down.out_features = static_cast<int32_t>(shape.hidden_size);
  down.gated = down.alternating = false;
  down.epilogue.bias = device_vector(downs.bias);
  down.epilogue.input_weights = nullptr;
  multiply(down, kernel, args.x.dtype, stream);
  launch_combine({.rows = scratch.rows.data,
                  .row_of_pair = scratch.row_of_pair.as<const int32_t>(),
                  .weights = args.weights_scale_input ? nullptr : weights,
                  .out = args.out.data,
                  .num_tokens = static_cast<int32_t>(args.x.shape[0]),
                  .top_k = static_cast<int32_t>(shape.top_k),
                  .hidden_size = static_cast<int32_t>(shape.hidden_size),
                  .element = element_of(args.x.dtype),
                  .accumulate = args.accumulate},
                 stream.handle);
}

}  // namespace attend::kernels::cuda
