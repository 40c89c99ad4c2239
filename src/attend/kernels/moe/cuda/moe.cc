#include "attend/kernels/moe/cuda/moe.h"

#include <algorithm>
#include <sstream>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/kernels/gemm/cuda/sm80/quantised_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/moe/cuda/sm80/grouped_gemm_kernel.h"
#include "attend/kernels/moe/cuda/sm80/lone_token_experts_kernel.h"
#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"
#include "attend/kernels/moe/cuda/sm90/expert_tiles.h"
#include "attend/kernels/moe/cuda/sm90/norm_route.h"
#include "attend/kernels/moe/scratch.h"

namespace attend::kernels::cuda {
namespace {

// In the mean, rows of an expert:
constexpr int64_t kRowsOfSkinny = 3;        // up to which reading W for 8 of them is all that counts,
constexpr int64_t kRowsOfSkinnyMxFp4 = 16;  // of mxfp4, for which there is nothing between those and tiles;
constexpr int64_t kMaxTokensOfLone = 1;     // tokens, that no sorting is wanted for; 0: off;
constexpr int64_t kRowsOfTiles = 16;        // from which on tiles of 128 are the fastest (sm90),
constexpr int64_t kRowsOfLargeTiles = 32;   // from which on tiles of 64 read W less often than they multiply
                                            // rows that are not there (sm80).
constexpr int64_t kMxFp4Inputs = 32;        // of a scale of mxfp4 as it is defined
constexpr int64_t kAlignedElements = 8;     // elements that an aligned copy moves

enum class ExpertKernel : uint8_t { kNaive, kGrouped, kLone, kDirect, kSkinny, kTiles, kMxFp4Tiles };
struct GroupedKernel {
  ExpertKernel kernel;
  std::string name;
  int tile_rows;
  std::string why = "rows for each expert in the mean";
};

// Whether tensor cores take a weight of experts, beside x of 16 bits.
bool fits_tensor_cores(const Weight& weight) {
  const bool bytes = has_eight_bits(weight.format);
  const int64_t inputs_of_16_bytes = has_four_bits(weight.format) ? 32 : bytes ? 16 : kAlignedElements;
  const bool whole_blocks = !bytes || weight.group_ins >= weight.in_features() ||
                            weight.group_ins % sm80::kEightBitBlockInputs == 0;
  return weight.in_features() % inputs_of_16_bytes == 0 && whole_blocks && rows_aligned({&weight.data});
}

bool is_mxfp4(const Weight& weight) {
  return weight.format == WeightFormat::kMxFp4 && weight.group_outs == 1 && weight.group_ins == kMxFp4Inputs;
}

// Plain, or mxfp4 beside x in bf16: what the kernels of few rows and of many take.
bool fits_own_tiles(const MoeExpertsArgs& args) {
  const Weight &gate_up = args.linears.gate_up.front().weight, &down = args.linears.down.front().weight;
  if (!gate_up.input_order.empty() || !down.input_order.empty()) return false;
  if (is_mxfp4(gate_up) && is_mxfp4(down)) return args.x.dtype == DType::kBF16;
  return gate_up.format == WeightFormat::kPlain && down.format == WeightFormat::kPlain;
}

bool fits_skinny(const MoeExpertsArgs& args, const GpuFacts& gpu) {
  const int64_t num_pairs = args.x.shape[0] * args.shape.top_k;
  const Weight &gate_up = args.linears.gate_up.front().weight, &down = args.linears.down.front().weight;
  const bool plain = down.format == WeightFormat::kPlain;
  const int64_t rows = plain ? kRowsOfSkinny : kRowsOfSkinnyMxFp4;
  // Scales of mxfp4 are copied by words.
  return fits_own_tiles(args) && words_aligned({&gate_up.scales, &down.scales}) &&
         num_pairs <= rows * args.shape.num_experts && gpu.shared_bytes >= sm80::kLargeSharedBytes &&
         num_pairs <= (plain ? sm80::kMaxSkinnyPairs : sm80::kMaxSkinnyMxFp4Pairs) &&
         args.x.shape[0] <= sm80::kMaxSkinnyTokens && args.shape.hidden_size % sm80::kSkinnyOutputs == 0 &&
         args.shape.intermediate_size % sm80::kSkinnyOutputs == 0;
}

bool begins_at_16_bytes(const TensorView& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0;
}

static_assert(sm80::kMaxDirectBytes <= sm80::kLargeSharedBytes, "fits_skinny() asks for those");
// Of what the skinny experts take.
bool fits_direct(const MoeExpertsArgs& args) {
  const MoeShape& shape = args.shape;
  const Weight &gate_up = args.linears.gate_up.front().weight, &down = args.linears.down.front().weight;
  return is_mxfp4(down) && shape.hidden_size % sm80::kDirectInputs == 0 &&
         shape.intermediate_size % sm80::kDirectInputs == 0 &&
         std::max(shape.hidden_size, shape.intermediate_size) <= sm80::kMaxDirectInputs &&
         begins_at_16_bytes(gate_up.scales) && begins_at_16_bytes(down.scales);
}

bool fits_lone(const MoeExpertsArgs& args, const GpuFacts& gpu) {
  const MoeShape& shape = args.shape;
  if (args.x.shape[0] > kMaxTokensOfLone || !fits_own_tiles(args) || shape.top_k > sm80::kMaxLoneTopK ||
      sm80::lone_token_x_bytes(1, shape.hidden_size) > sm80::kMaxLoneXBytes)
    return false;
  const Weight& down = args.linears.down.front().weight;
  if (!is_mxfp4(down))
    return sm80::lone_token_x_bytes(shape.top_k, shape.intermediate_size) <= sm80::kMaxLoneXBytes;
  // Its scales are loaded by two.
  const sm80::LoneShare share =
      sm80::lone_share(shape.top_k, shape.intermediate_size, shape.hidden_size, gpu.num_sms);
  return shape.intermediate_size / kMxFp4Inputs % 2 == 0 &&
         reinterpret_cast<uintptr_t>(down.scales.data) % 2 == 0 &&
         share.shared_bytes <= sm80::kMaxLoneDownBytes;
}

GroupedKernel choose(const MoeExpertsArgs& args, const GpuFacts& gpu) {
  const MoeShape& shape = args.shape;
  const Weight &gate_up = args.linears.gate_up.front().weight, &down = args.linears.down.front().weight;
  const bool aligned = shape.hidden_size % kAlignedElements == 0 &&
                       shape.intermediate_size % kAlignedElements == 0 && rows_aligned({&args.x, &args.out});
  if (args.x.dtype == DType::kF32 || !aligned || !fits_tensor_cores(gate_up) || !fits_tensor_cores(down))
    return {.kernel = ExpertKernel::kNaive,
            .name = "naive grouped GEMM",
            .tile_rows = kNaiveTileRows,
            .why = "float32, rows that 16 bytes do not divide, or groups that 64 inputs of 8 bits do not"};
  const int64_t num_pairs = args.x.shape[0] * shape.top_k;
  const bool many = num_pairs >= kRowsOfLargeTiles * shape.num_experts;
  const std::string tile = many ? "64 rows" : "16 rows";
  const int tile_rows = many ? kLargeTileRows : kSmallTileRows;
  const bool plain = gate_up.format == WeightFormat::kPlain;
  const GroupedKernel invariant{.kernel = ExpertKernel::kGrouped,
                                .name = (plain ? "grouped GEMM of " : "quantised grouped GEMM of ") + tile,
                                .tile_rows = tile_rows};
  if (args.batch_invariant) return invariant;
  if (fits_lone(args, gpu))
    return {
        .kernel = ExpertKernel::kLone, .name = "experts of a lone token", .tile_rows = 1, .why = "one token"};
  if (fits_skinny(args, gpu) && fits_direct(args))
    return {.kernel = ExpertKernel::kDirect, .name = "direct experts", .tile_rows = sm80::kSkinnyRows};
  if (fits_skinny(args, gpu))
    return {.kernel = ExpertKernel::kSkinny, .name = "skinny experts", .tile_rows = sm80::kSkinnyRows};
  if (!gpu.runs_sm90a() || !fits_own_tiles(args)) return invariant;
  // Tiles of mxfp4, of multiples of 64 inputs, beat the others wherever there are more rows than those of the
  // skinny experts. The kernel finds its tiles itself, and does not read what is counted by tile_rows.
  if (!plain && shape.hidden_size % sm90::kMxFp4TilesInputs == 0 &&
      shape.intermediate_size % sm90::kMxFp4TilesInputs == 0)
    return {.kernel = ExpertKernel::kMxFp4Tiles, .name = "expert tiles of mxfp4 (sm90)", .tile_rows = 1};
  const bool alternating = args.gate.activation == ExpertActivation::kClampedSwiglu;
  if (plain && !alternating && num_pairs >= kRowsOfTiles * shape.num_experts)
    return {
        .kernel = ExpertKernel::kTiles, .name = "expert tiles (sm90)", .tile_rows = sm90::kExpertTilesRows};
  return invariant;
}

void record(const MoeExpertsArgs& args, const GroupedKernel& kernel) {
  std::ostringstream text;
  text << args.x.shape[0] << " tokens x " << args.shape.top_k << " of " << args.shape.num_experts
       << " experts, " << args.shape.hidden_size << " -> " << args.shape.intermediate_size << ", "
       << args.x.dtype << ", weights in " << describe_elements(args.linears.down.front().weight);
  record_choice({.op = "moe_experts", .problem = text.str(), .kernel = kernel.name, .why = kernel.why});
}

void multiply(const GroupedGemmParams& params, const Weight& weight, const GroupedKernel& kernel, DType dtype,
              Stream& stream) {
  if (kernel.kernel == ExpertKernel::kNaive)
    return launch_naive_grouped_gemm(params, element_of(dtype), stream.handle);
  if (kernel.kernel == ExpertKernel::kTiles) return sm90::expert_tiles(params, weight.data, stream);
  const bool bf16 = dtype == DType::kBF16;
  const auto launch =
      params.weight.format == WeightFormat::kPlain
          ? (bf16 ? sm80::launch_grouped_gemm_bf16 : sm80::launch_grouped_gemm_f16)
          : (bf16 ? sm80::launch_quantised_grouped_gemm_bf16 : sm80::launch_quantised_grouped_gemm_f16);
  launch(params, kernel.tile_rows, stream.handle);
}

// The product of rows whose columns are in the order in which it takes them; of others, of copies in that
// order at `ordered`. Only the second product's rows are those of its x (token_of_row is null).
void multiply_in_order(GroupedGemmParams params, const Weight& weight, const GroupedKernel& kernel,
                       DType dtype, void* ordered, int64_t num_rows, Stream& stream) {
  if (kernel.kernel == ExpertKernel::kMxFp4Tiles) {
    // The first product leaves its outputs in the order in which the second one takes them.
    if (params.token_of_row != nullptr) {
      sm90::mxfp4_inputs(params.x, params.token_of_row, ordered, num_rows, params.in_features, stream);
      params.x = ordered;
      params.token_of_row = nullptr;
    }
    return sm90::mxfp4_tiles(params, num_rows, stream);
  }
  if (!weight.input_order.empty()) {
    launch_order_inputs({.from = params.x,
                         .token_of_row = params.token_of_row,
                         .order = params.weight.input_order,
                         .first_row = params.first_row,
                         .to = ordered,
                         .num_rows = static_cast<int32_t>(num_rows),
                         .num_experts = params.num_experts,
                         .in_features = params.in_features,
                         .element = element_of(dtype)},
                        stream.handle);
    params.x = ordered;
    params.token_of_row = nullptr;
    params.weight.input_order = nullptr;
  }
  multiply(params, weight, kernel, dtype, stream);
}

int64_t num_scales(const Weight& weight) { return weight.scales.empty() ? 0 : weight.scales.num_elements(); }

bool fills_sms(int64_t num_ctas, int num_sms) {
  constexpr double kShare = 0.9;
  return static_cast<double>(num_ctas) >=
         kShare * static_cast<double>(ceil_div<int64_t>(num_ctas, num_sms) * num_sms);
}

// `row_of_pair`: null: rows are pairs.
void combine(const MoeExpertsArgs& args, const ExpertScratch& scratch, const int32_t* row_of_pair,
             Stream& stream) {
  launch_combine({.rows = scratch.rows.data,
                  .row_of_pair = row_of_pair,
                  .weights = args.weights_scale_input ? nullptr : args.weights.as<const float>(),
                  .out = args.out.data,
                  .num_tokens = static_cast<int32_t>(args.x.shape[0]),
                  .top_k = static_cast<int32_t>(args.shape.top_k),
                  .hidden_size = static_cast<int32_t>(args.shape.hidden_size),
                  .element = element_of(args.x.dtype),
                  .accumulate = args.accumulate,
                  .aligned = args.shape.hidden_size % kAlignedElements == 0 && rows_aligned({&args.out})},
                 stream.handle);
}

// Both products, the rows in the order of their pairs between them.
void skinny_experts(const MoeExpertsArgs& args, const ExpertScratch& scratch, ExpertKernel kernel,
                    Stream& stream) {
  const MoeShape& shape = args.shape;
  const Linear &gate_ups = args.linears.gate_up.front(), &downs = args.linears.down.front();
  const bool clamped = args.gate.activation == ExpertActivation::kClampedSwiglu;
  const auto* const weights = args.weights.as<const float>();
  const sm80::SkinnyExpertsParams gate_up{
      .x = args.x.data,
      .weight = quantised_weight(gate_ups.weight),
      .num_scales = num_scales(gate_ups.weight),
      .out = scratch.inner.data,
      .experts = args.experts.as<const int32_t>(),
      .weights = nullptr,
      .num_tokens = static_cast<int32_t>(args.x.shape[0]),
      .top_k = static_cast<int32_t>(shape.top_k),
      .num_experts = static_cast<int32_t>(shape.num_experts),
      .in_features = static_cast<int32_t>(shape.hidden_size),
      .out_features = static_cast<int32_t>(shape.intermediate_size),
      .gated = true,
      .alternating = clamped,
      .sums = false,
      .accumulate = false,
      .epilogue = {.bias = device_vector(gate_ups.bias),
                   .input_weights = args.weights_scale_input ? weights : nullptr,
                   .pair_of_row = nullptr,
                   .clamped = clamped,
                   .limit = args.gate.limit,
                   .alpha = args.gate.alpha}};
  sm80::SkinnyExpertsParams down = gate_up;
  down.x = scratch.inner.data;
  down.weight = quantised_weight(downs.weight);
  down.num_scales = num_scales(downs.weight);
  // One launch where 16 outputs a CTA keep most SMs busy.
  const bool lone = kernel == ExpertKernel::kLone, direct = kernel == ExpertKernel::kDirect;
  down.sums = lone || (!direct &&
                       fills_sms(shape.hidden_size / sm80::kSkinnyOutputs, gpu_facts(stream.device).num_sms));
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
  const auto launch = lone     ? (!plain ? sm80::launch_lone_token_mxfp4_experts_bf16
                                  : bf16 ? sm80::launch_lone_token_experts_bf16
                                         : sm80::launch_lone_token_experts_f16)
                      : direct ? sm80::launch_direct_mxfp4_experts_bf16
                      : !plain ? sm80::launch_skinny_mxfp4_experts_bf16
                      : bf16   ? sm80::launch_skinny_experts_bf16
                               : sm80::launch_skinny_experts_f16;
  launch(gate_up, stream.handle);
  launch(down, stream.handle);
  if (!down.sums) combine(args, scratch, /*row_of_pair=*/nullptr, stream);
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
          .scale = args.rule.scale,
          .of_all = args.rule.weights_of == RouterWeights::kOfAll,
          .sigmoid = args.rule.scores == RouterScores::kSigmoid,
          .spread = args.rule.spread};
}

void route(const RouteArgs& args, Stream& stream) {
  launch_route(route_params(args, args.logits.shape[1]), stream.handle);
}

bool norm_route(const NormRouteArgs& args, Stream& stream) {
  return gpu_facts(stream.device).runs_sm90a() && sm90::norm_route(args, stream);
}

void moe_experts(const MoeExpertsArgs& args, Stream& stream) {
  const MoeShape& shape = args.shape;
  const Linear &gate_ups = args.linears.gate_up.front(), &downs = args.linears.down.front();
  for (const Linear* linear : {&gate_ups, &downs})
    if (linear->weight.format == WeightFormat::kPlain && linear->weight.data.dtype != args.x.dtype)
      fail(ErrorCode::kUnsupported, "experts ", linear->weight, ": expected the dtype of x, ", args.x.dtype);
  const GroupedKernel kernel = choose(args, gpu_facts(stream.device));
  if (records_choices()) record(args, kernel);
  ScratchPieces pieces(args.scratch, stream.device);
  const ExpertScratch scratch(shape, args.x.shape[0], args.x.dtype, pieces);
  if (kernel.kernel == ExpertKernel::kLone || kernel.kernel == ExpertKernel::kDirect ||
      kernel.kernel == ExpertKernel::kSkinny)
    return skinny_experts(args, scratch, kernel.kernel, stream);
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
  // Rows that are not written yet.
  multiply_in_order(gate_up, gate_ups.weight, kernel, args.x.dtype, scratch.rows.data, num_pairs, stream);
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
  // What lies between takes the first half of its memory.
  const size_t half_bytes = scratch.inner.num_bytes() / 2;
  void* const second_half = static_cast<std::byte*>(scratch.inner.data) + half_bytes;
  multiply_in_order(down, downs.weight, kernel, args.x.dtype, second_half, num_pairs, stream);
  combine(args, scratch, scratch.row_of_pair.as<const int32_t>(), stream);
}

}  // namespace attend::kernels::cuda
