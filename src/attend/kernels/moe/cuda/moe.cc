#include "attend/kernels/moe/cuda/moe.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "attend/base/error.h"
#include "attend/kernels/common/choose_row.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/kernels/moe/cuda/choose.h"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/moe/cuda/sm80/grouped_gemm_kernel.h"
#include "attend/kernels/moe/cuda/sm80/single_token_experts_kernel.h"
#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"
#include "attend/kernels/moe/cuda/sm90/expert_tiles.h"
#include "attend/kernels/moe/cuda/sm90/norm_route.h"
#include "attend/kernels/moe/scratch.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"

namespace attend::kernels::cuda {
namespace {

constexpr int64_t kAlignedElements = 8;  // elements per aligned copy

// Returns the alignment of the address in bytes: a power of two up to 16.
int get_alignment(const TensorView& tensor) {
  int bytes = 16;
  while (reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(bytes) != 0) bytes /= 2;
  return bytes;
}

MoeWeight moe_weight(const Weight& weight) {
  return {.format = weight.format,
          .in_features = weight.in_features(),
          .group_outs = weight.group_outs,
          .group_ins = weight.group_ins,
          .aligned = rows_aligned({&weight.data}),
          .scales_alignment = get_alignment(weight.scales),
          .reorders = !weight.input_order.empty()};
}

// Returns MoeProblem::num_shared_parts.
int64_t num_shared_parts(const MoeExpertsArgs& args) {
  const SharedExpertArgs& shared = args.shared;
  if (shared.empty() || args.weights_scale_input) return 0;
  for (const Linear* linear : {&shared.gate_up, &shared.down})
    if (linear->weight.format != WeightFormat::kPlain || linear->weight.data.dtype != args.x.dtype ||
        !linear->bias.empty() || !rows_aligned({&linear->weight.data}))
      return 0;
  const int64_t size = shared.down.weight.in_features(), part_size = args.shape.intermediate_size;
  const bool fits = shared.gate_up.weight.out_features() == args.gate.num_products() * size &&
                    shared.gate_up.weight.in_features() == args.shape.hidden_size &&
                    shared.down.weight.out_features() == args.shape.hidden_size && size % part_size == 0;
  return fits ? size / part_size : 0;
}

MoeProblem moe_problem(const MoeExpertsArgs& args) {
  const MoeShape& shape = args.shape;
  return {.num_tokens = args.x.shape[0],
          .num_experts = shape.num_experts,
          .top_k = shape.top_k,
          .hidden_size = shape.hidden_size,
          .intermediate_size = shape.intermediate_size,
          .dtype = args.x.dtype,
          .aligned = rows_aligned({&args.x, &args.out}),
          .alternating = args.gate.activation == ExpertActivation::kClampedSwiglu,
          .gated = args.gate.num_products() == 2,
          .batch_invariant = args.batch_invariant,
          .gate_up = moe_weight(args.linears.gate_up.front().weight),
          .down = moe_weight(args.linears.down.front().weight),
          .num_shared_parts = num_shared_parts(args)};
}

std::string description(const MoeExpertsArgs& args) {
  std::ostringstream text;
  text << args.x.shape[0] << " tokens x " << args.shape.top_k << " of " << args.shape.num_experts
       << " experts, " << args.shape.hidden_size << " -> " << args.shape.intermediate_size << ", "
       << args.x.dtype << ", weights in " << describe_elements(args.linears.down.front().weight);
  return text.str();
}

void multiply(const GroupedGemmParams& params, const Weight& weight, const MoeRow& row, DType dtype,
              Stream& stream) {
  if (row.kernel == MoeKernel::kNaive)
    return launch_naive_grouped_gemm(params, to_element_type(dtype), stream.handle);
  if (row.kernel == MoeKernel::kExpertTiles) return sm90::expert_tiles(params, weight.data, stream);
  const bool bf16 = dtype == DType::kBF16;
  const auto launch =
      params.weight.format == WeightFormat::kPlain
          ? (bf16 ? sm80::launch_grouped_gemm_bf16 : sm80::launch_grouped_gemm_f16)
          : (bf16 ? sm80::launch_quantized_grouped_gemm_bf16 : sm80::launch_quantized_grouped_gemm_f16);
  launch(params, row.tile_rows, stream.handle);
}

// Multiplies rows with inputs in the weight's column order. If they are not, copies the rows in that order to
// `ordered` first. Rows of the second product are those of its x (row_token is null).
void multiply_in_order(GroupedGemmParams params, const Weight& weight, const MoeRow& row, DType dtype,
                       void* ordered, int64_t num_rows, Stream& stream) {
  if (row.kernel == MoeKernel::kMxFp4Tiles) {
    // The first product writes its outputs in the order of the second one's columns.
    if (params.row_token != nullptr) {
      sm90::mxfp4_inputs(params.x, params.row_token, ordered, num_rows, params.in_features, stream);
      params.x = ordered;
      params.row_token = nullptr;
    }
    return sm90::mxfp4_tiles(params, num_rows, stream);
  }
  if (!weight.input_order.empty()) {
    launch_order_inputs({.from = params.x,
                         .row_token = params.row_token,
                         .order = params.weight.input_order,
                         .first_row = params.first_row,
                         .to = ordered,
                         .num_rows = static_cast<int32_t>(num_rows),
                         .num_experts = params.num_experts,
                         .in_features = params.in_features,
                         .element = to_element_type(dtype)},
                        stream.handle);
    params.x = ordered;
    params.row_token = nullptr;
    params.weight.input_order = nullptr;
  }
  multiply(params, weight, row, dtype, stream);
}

int64_t num_scales(const Weight& weight) { return weight.scales.empty() ? 0 : weight.scales.num_elements(); }

// `pair_row`: null if rows are pairs.
void combine(const MoeExpertsArgs& args, const ExpertScratch& scratch, const int32_t* pair_row,
             Stream& stream) {
  launch_combine({.rows = scratch.rows.data,
                  .pair_row = pair_row,
                  .weights = args.weights_scale_input ? nullptr : args.weights.as<const float>(),
                  .out = args.out.data,
                  .num_tokens = static_cast<int32_t>(args.x.shape[0]),
                  .top_k = static_cast<int32_t>(args.shape.top_k),
                  .hidden_size = static_cast<int32_t>(args.shape.hidden_size),
                  .element = to_element_type(args.x.dtype),
                  .accumulate = args.accumulate,
                  .aligned = args.shape.hidden_size % kAlignedElements == 0 && rows_aligned({&args.out})},
                 stream.handle);
}

// Parameters of the shared expert for the first product.
sm80::SharedExpertParts shared_parts(const MoeExpertsArgs& args) {
  const SharedExpertArgs& shared = args.shared;
  return {.weight = shared.gate_up.weight.data.data,
          .gate = shared.gate_out.empty() ? nullptr : shared.gate_out.as<const float>(),
          .num_parts = static_cast<int32_t>(num_shared_parts(args))};
}

// Computes both products; rows between them are in the order of their pairs.
void skinny_experts(const MoeExpertsArgs& args, const ExpertScratch& scratch, const MoeChoice& choice,
                    Stream& stream) {
  const MoeShape& shape = args.shape;
  const Linear &gate_ups = args.linears.gate_up.front(), &downs = args.linears.down.front();
  const bool clamped = args.gate.activation == ExpertActivation::kClampedSwiglu;
  const auto* const weights = args.weights.as<const float>();
  const sm80::SkinnyExpertsParams gate_up{
      .x = args.x.data,
      .weight = quantized_weight(gate_ups.weight),
      .num_scales = num_scales(gate_ups.weight),
      .out = scratch.inner.data,
      .experts = args.experts.as<const int32_t>(),
      .weights = nullptr,
      .num_tokens = static_cast<int32_t>(args.x.shape[0]),
      .top_k = static_cast<int32_t>(shape.top_k),
      .num_experts = static_cast<int32_t>(shape.num_experts),
      .in_features = static_cast<int32_t>(shape.hidden_size),
      .out_features = static_cast<int32_t>(shape.intermediate_size),
      .gated = args.gate.num_products() == 2,
      .alternating = clamped,
      .sums = false,
      .accumulate = false,
      .epilogue = {.bias = device_vector(gate_ups.bias),
                   .input_weights = args.weights_scale_input ? weights : nullptr,
                   .row_pair = nullptr,
                   .clamped = clamped,
                   .gelu = args.gate.activation == ExpertActivation::kGeluTanh,
                   .limit = args.gate.limit,
                   .alpha = args.gate.alpha},
      .shared = choice.adds_shared ? shared_parts(args) : sm80::SharedExpertParts{}};
  sm80::SkinnyExpertsParams down = gate_up;
  if (choice.adds_shared) down.shared.weight = args.shared.down.weight.data.data;
  down.x = scratch.inner.data;
  down.weight = quantized_weight(downs.weight);
  down.num_scales = num_scales(downs.weight);
  down.sums = choice.sums_experts;
  down.out = down.sums ? args.out.data : scratch.rows.data;
  down.weights = args.weights_scale_input ? nullptr : weights;
  down.in_features = static_cast<int32_t>(shape.intermediate_size);
  down.out_features = static_cast<int32_t>(shape.hidden_size);
  down.gated = down.alternating = false;
  down.accumulate = args.accumulate;
  down.epilogue.bias = device_vector(downs.bias);
  down.epilogue.input_weights = nullptr;
  const bool plain = gate_ups.weight.format == WeightFormat::kPlain;
  const bool bf16 = args.x.dtype == DType::kBF16;
  const bool single_token = choice.row.kernel == MoeKernel::kSingleToken;
  const bool direct = choice.row.kernel == MoeKernel::kDirect;
  const auto launch = single_token ? (!plain ? sm80::launch_single_token_mxfp4_experts_bf16
                                      : bf16 ? sm80::launch_single_token_experts_bf16
                                             : sm80::launch_single_token_experts_f16)
                      : direct     ? sm80::launch_direct_mxfp4_experts_bf16
                      : !plain     ? sm80::launch_skinny_mxfp4_experts_bf16
                      : bf16       ? sm80::launch_skinny_experts_bf16
                                   : sm80::launch_skinny_experts_f16;
  launch(gate_up, stream.handle);
  launch(down, stream.handle);
  if (!down.sums) combine(args, scratch, /*pair_row=*/nullptr, stream);
}

}  // namespace

RouteParams route_params(const RouteArgs& args, int64_t num_experts) {
  return {.logits = args.logits.empty() ? nullptr : args.logits.as<const float>(),
          .experts = args.experts.as<int32_t>(),
          .weights = args.weights.as<float>(),
          .num_tokens = static_cast<int32_t>(args.experts.shape[0]),
          .num_experts = static_cast<int32_t>(num_experts),
          .top_k = static_cast<int32_t>(args.experts.shape[1]),
          .num_groups = static_cast<int32_t>(args.rule.groups.num_groups),
          .top_groups = static_cast<int32_t>(args.rule.groups.top_groups),
          .correction = args.correction.empty() ? nullptr : args.correction.as<const float>(),
          .expert_scales = args.expert_scales.empty() ? nullptr : args.expert_scales.as<const float>(),
          .scale = args.rule.scale,
          .sum_epsilon = args.rule.sum_epsilon,
          .over_all_experts = args.rule.weights == RouterWeights::kAllExperts,
          .sigmoid = args.rule.scores == RouterScores::kSigmoid,
          .over_near_experts = args.rule.weights == RouterWeights::kNearExperts,
          .near = args.rule.near,
          .spread = args.rule.spread};
}

void route(const RouteArgs& args, Stream& stream) {
  launch_route(route_params(args, args.logits.shape[1]), stream.handle);
}

bool shared_gate(const SharedGateArgs& args, Stream& stream) {
  const Weight& weight = args.gate.weight;
  const DType dtype = args.x.dtype;
  const int64_t in_features = args.x.shape[1];
  const int64_t inner_features = args.inner.empty() ? 0 : args.inner.shape[1];
  if (dtype == DType::kF32 || weight.format != WeightFormat::kPlain || weight.data.dtype != dtype ||
      !args.gate.bias.empty() || in_features % kAlignedElements != 0 ||
      inner_features % kAlignedElements != 0 || !rows_aligned({&args.x, &weight.data, &args.inner}))
    return false;
  launch_shared_gate({.x = args.x.data,
                      .x_stride = args.x.strides[0],
                      .weight = weight.data.data,
                      .out = args.out.as<float>(),
                      .inner = args.inner.empty() ? nullptr : args.inner.data,
                      .inner_stride = args.inner.empty() ? 0 : args.inner.strides[0],
                      .num_tokens = static_cast<int32_t>(args.x.shape[0]),
                      .in_features = static_cast<int32_t>(in_features),
                      .inner_features = static_cast<int32_t>(inner_features),
                      .element = to_element_type(dtype)},
                     stream.handle);
  return true;
}

bool norm_route(const NormRouteArgs& args, Stream& stream) {
  return gpu_facts(stream.device).runs_sm90a() && sm90::norm_route(args, stream);
}

bool adds_shared_expert(const MoeExpertsArgs& args, Stream& stream) {
  return choose(moe_problem(args), gpu_facts(stream.device)).adds_shared;
}

void moe_experts(const MoeExpertsArgs& args, Stream& stream) {
  const MoeShape& shape = args.shape;
  const Linear &gate_ups = args.linears.gate_up.front(), &downs = args.linears.down.front();
  for (const Linear* linear : {&gate_ups, &downs})
    if (linear->weight.format == WeightFormat::kPlain && linear->weight.data.dtype != args.x.dtype)
      fail(ErrorCode::kUnsupported, "experts ", linear->weight, ": expected the dtype of x, ", args.x.dtype);
  const MoeChoice choice = choose(moe_problem(args), gpu_facts(stream.device));
  const MoeRow& row = choice.row;
  report_choice("moe_experts", row, [&] { return description(args); });
  ScratchPieces pieces(args.scratch, stream.device);
  const ExpertScratch scratch(shape, args.x.shape[0], args.x.dtype, pieces);
  if (row.kernel == MoeKernel::kSingleToken || row.kernel == MoeKernel::kDirect ||
      row.kernel == MoeKernel::kSkinny)
    return skinny_experts(args, scratch, choice, stream);
  const int64_t num_pairs = args.x.shape[0] * shape.top_k;
  int32_t* const first_row = scratch.offsets[0].as<int32_t>();
  int32_t* const first_tile = scratch.offsets[1].as<int32_t>();
  launch_sort_pairs({.experts = args.experts.as<const int32_t>(),
                     .pair_row = scratch.pair_row.as<int32_t>(),
                     .row_token = scratch.row_token.as<int32_t>(),
                     .row_pair = scratch.segments.as<int32_t>(),
                     .first_row = first_row,
                     .first_tile = first_tile,
                     .counts = scratch.segments.as<int32_t>() + num_pairs,
                     .num_pairs = static_cast<int32_t>(num_pairs),
                     .num_experts = static_cast<int32_t>(shape.num_experts),
                     .top_k = static_cast<int32_t>(shape.top_k),
                     .tile_rows = row.tile_rows},
                    stream.handle);
  // Maximum number of tiles for this number of pairs: every expert's last tile may be partial.
  const int64_t num_touched = std::min(num_pairs, shape.num_experts);
  const int64_t num_tiles = num_touched + (num_pairs - num_touched) / row.tile_rows;
  const bool clamped = args.gate.activation == ExpertActivation::kClampedSwiglu;
  const auto* const weights = args.weights.as<const float>();
  const GroupedGemmParams gate_up{.x = args.x.data,
                                  .x_stride = shape.hidden_size,
                                  .row_token = scratch.row_token.as<const int32_t>(),
                                  .weight = quantized_weight(gate_ups.weight),
                                  .out = scratch.inner.data,
                                  .first_row = first_row,
                                  .first_tile = first_tile,
                                  .num_experts = static_cast<int32_t>(shape.num_experts),
                                  .in_features = static_cast<int32_t>(shape.hidden_size),
                                  .out_features = static_cast<int32_t>(shape.intermediate_size),
                                  .gated = args.gate.num_products() == 2,
                                  .alternating = clamped,
                                  .num_tiles = static_cast<int32_t>(num_tiles),
                                  .epilogue = {.bias = device_vector(gate_ups.bias),
                                               .input_weights = args.weights_scale_input ? weights : nullptr,
                                               .row_pair = scratch.segments.as<const int32_t>(),
                                               .clamped = clamped,
                                               .gelu = args.gate.activation == ExpertActivation::kGeluTanh,
                                               .limit = args.gate.limit,
                                               .alpha = args.gate.alpha}};
  // scratch.rows is free here: it is written by the second product.
  multiply_in_order(gate_up, gate_ups.weight, row, args.x.dtype, scratch.rows.data, num_pairs, stream);
  if (!gate_up.gated)
    relu2(TensorView::contiguous(scratch.inner.data, args.x.dtype, {num_pairs, shape.intermediate_size},
                                 args.x.device),
          stream);
  GroupedGemmParams down = gate_up;
  down.x = scratch.inner.data;
  down.x_stride = shape.intermediate_size;
  down.row_token = nullptr;
  down.weight = quantized_weight(downs.weight);
  down.out = scratch.rows.data;
  down.in_features = static_cast<int32_t>(shape.intermediate_size);
  down.out_features = static_cast<int32_t>(shape.hidden_size);
  down.gated = down.alternating = false;
  down.epilogue.bias = device_vector(downs.bias);
  down.epilogue.input_weights = nullptr;
  // The output of the first product uses the first half of this memory; the second half is free.
  const size_t half_bytes = scratch.inner.num_bytes() / 2;
  void* const second_half = static_cast<std::byte*>(scratch.inner.data) + half_bytes;
  multiply_in_order(down, downs.weight, row, args.x.dtype, second_half, num_pairs, stream);
  combine(args, scratch, scratch.pair_row.as<const int32_t>(), stream);
}

}  // namespace attend::kernels::cuda
