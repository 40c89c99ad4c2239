// The GPU kernels of a build without CUDA: there are none, and what would call one throws
// Error(kUnsupported).
#include "attend/base/without_cuda.h"

#include <string_view>

#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/attention/cuda/plan.h"
#include "attend/kernels/comm/cuda/peer_ranks.h"
#include "attend/kernels/common/cuda/fill_random.h"
#include "attend/kernels/fused/cuda/qkv.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/low_rank.h"
#include "attend/kernels/kv_store/cuda/store.h"
#include "attend/kernels/metadata/cuda/metadata.h"
#include "attend/kernels/moe/cuda/moe.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/recurrent/cuda/recurrent.h"
#include "attend/kernels/sampling/cuda/sampling.h"
#include "attend/kernels/vision/cuda/vision.h"

namespace attend::kernels::cuda {
namespace {

[[noreturn]] void reject(std::string_view kernel) {
  fail(ErrorCode::kUnsupported, kernel, " on a GPU: ", kWithoutCuda);
}

}  // namespace

// common
void fill_random(const TensorView&, const RandomNormal&, Stream&) { reject("fill_random"); }

// comm
struct PeerRanks::Impl {};
PeerRanks::PeerRanks(std::span<const Device>, size_t, std::chrono::milliseconds) { reject("ranks"); }
PeerRanks::~PeerRanks() = default;
Communicator& PeerRanks::communicator(int) { reject("ranks"); }
void PeerRanks::stop() { reject("ranks"); }
bool PeerRanks::stopped() const { reject("ranks"); }

// metadata
void build_page_table(const RequestRows&, int, int, View<int32_t>, Stream&) { reject("build_page_table"); }
void build_csr(const RequestRows&, int, View<int32_t>, View<int32_t>, Stream&) { reject("build_csr"); }
void write_new_slots(const NewSlots&, const TensorView&, Stream&) { reject("write_new_slots"); }

// kv_store
void derive_batch(const BatchSource&, const BatchArrays&, Stream&) { reject("derive_batch"); }
void append_keys(const BatchSource&, const BatchArrays&, const StoreKvArgs&, Stream&) {
  reject("append_keys");
}
void gather_latent(const GatherLatentArgs&, Stream&) { reject("gather_latent"); }
void cu_seqlens_to_lengths(View<const int32_t>, View<int32_t>, Stream&) { reject("cu_seqlens_to_lengths"); }
void copy_to_heads(const TensorView&, const TensorView&, Stream&) { reject("copy_to_heads"); }
void copy_pages(const PageTiles&, View<const PageCopy>, CopyDirection, Stream&, CopyMethod) {
  reject("copy_pages");
}
void compact_slots(const CompactSlotsArgs&, Stream&) { reject("compact_slots"); }
void dequantize_rows(const DequantizeRowsArgs&, Stream&) { reject("dequantize_rows"); }
void store_kv(const StoreKvArgs&, Stream&) { reject("store_kv"); }
void store_mla(const StoreMlaArgs&, Stream&) { reject("store_mla"); }

// norm_rope
void latent_norm_rope_store(const LatentNormRopeStoreArgs&, Stream&) { reject("latent_norm_rope_store"); }
void embedding(View<const int32_t>, const TensorView&, const TensorView&, float, Stream&) {
  reject("embedding");
}
void rms_norm(const TensorView&, const TensorView&, float, const TensorView&, Stream&, float) {
  reject("rms_norm");
}
void add_rms_norm(const TensorView&, const TensorView&, const TensorView&, float, const TensorView&, Stream&,
                  float) {
  reject("add_rms_norm");
}
void rms_norm_add(const TensorView&, const TensorView&, float, const TensorView&, Stream&) {
  reject("rms_norm_add");
}
void add_embedding(View<const int32_t>, const TensorView&, const TensorView&, Stream&) {
  reject("add_embedding");
}
void layer_norm(const TensorView&, const TensorView&, const TensorView&, const TensorView&, float,
                const TensorView&, Stream&) {
  reject("layer_norm");
}
void gelu(const TensorView&, Stream&) { reject("gelu"); }
void gelu_tanh(const TensorView&, Stream&) { reject("gelu_tanh"); }
void relu(const TensorView&, Stream&) { reject("relu"); }
void relu2(const TensorView&, Stream&) { reject("relu2"); }
void silu(const TensorView&, Stream&) { reject("silu"); }
void clamp(const TensorView&, float, Stream&) { reject("clamp"); }
void gate_mul(const TensorView&, const TensorView&, GateFunction, Stream&) { reject("gate_mul"); }
void scale_by_gate(const TensorView&, const TensorView&, GateFunction, Stream&) { reject("scale_by_gate"); }
void copy_heads(const TensorView&, const TensorView&, Stream&) { reject("copy_heads"); }
void xielu(const TensorView&, const XieluAlphas&, Stream&) { reject("xielu"); }
void multiply(const TensorView&, const TensorView&, Stream&) { reject("multiply"); }
void scale(const TensorView&, float, Stream&) { reject("scale"); }
void scale(const TensorView&, const TensorView&, Stream&) { reject("scale"); }
void silu_mul(const TensorView&, const TensorView&, Stream&) { reject("silu_mul"); }
void gelu_mul(const TensorView&, const TensorView&, Stream&) { reject("gelu_mul"); }
void gelu_tanh_mul(const TensorView&, const TensorView&, Stream&) { reject("gelu_tanh_mul"); }
void soft_cap(const TensorView&, float, Stream&) { reject("soft_cap"); }
void norm_rope(const NormRopeArgs&, Stream&) { reject("rope"); }
void norm_rope_store(const NormRopeArgs&, const StoreKvArgs&, Stream&) { reject("rope"); }
void scale_by_position(const TensorView&, View<const int32_t>, const QueryTemperature&, Stream&) {
  reject("scale_by_position");
}
void dynamic_angles(const DynamicAnglesArgs&, Stream&) { reject("dynamic_angles"); }
void axis_angles(const AxisAnglesArgs&, Stream&) { reject("axis_angles"); }
void rope_rows_by_length(const RopeRowsByLengthArgs&, Stream&) { reject("rope_rows_by_length"); }
void gather_rows(const TensorView&, View<const int32_t>, const TensorView&, Stream&) {
  reject("gather_rows");
}
void add_rows(const TensorView&, const TensorView&, Stream&) { reject("add_rows"); }
void clear_first_rows(View<const int32_t>, const TensorView&, Stream&) { reject("clear_first_rows"); }
void apply_rope_rows(const RopeRowsArgs&, Stream&) { reject("apply_rope_rows"); }

// vision
void image_patches(const ImagePatchesArgs&, Stream&) { reject("image_patches"); }
void add_table_rows(const AddTableRowsArgs&, Stream&) { reject("add_table_rows"); }
void join_channels(const TensorView&, int64_t, const TensorView&, Stream&) { reject("join_channels"); }
void average_patches(const AveragePatchesArgs&, Stream&) { reject("average_patches"); }
void clamp_between(const TensorView&, const TensorView&, const TensorView&, const TensorView&, Stream&) {
  reject("clamp_between");
}

// recurrent
void causal_conv(const CausalConvArgs&, Stream&) { reject("causal_conv"); }
void gated_delta_rule(const GatedDeltaArgs&, Stream&) { reject("gated_delta_rule"); }
void gated_norm(const GatedNormArgs&, Stream&) { reject("gated_norm"); }
bool delta_token(const DeltaTokenArgs&, Stream&) { reject("delta_token"); }
void selective_scan(const SelectiveScanArgs&, Stream&) { reject("selective_scan"); }
void grouped_gated_norm(const GroupedGatedNormArgs&, Stream&) { reject("grouped_gated_norm"); }

// gemm
void head_linear(const HeadLinearArgs&, Stream&) { reject("head_linear"); }
bool linear(const LinearArgs&, Stream&) { reject("linear"); }
bool gated_linear(const GatedLinearArgs&, Stream&) { reject("gated_linear"); }
void shrink_low_rank(const LowRankInput&, const LowRankProduct&, const LowRankArrays&, Stream&) {
  reject("shrink_low_rank");
}
void expand_low_rank(const LowRankInput&, const LowRankProduct&, const LowRankArrays&, Stream&) {
  reject("expand_low_rank");
}
bool supports_silu_mul(const LowRankInput&, const LowRankProduct&, const LowRankArrays&, const TensorView&) {
  return false;
}
void expand_low_rank_silu_mul(const LowRankInput&, const LowRankProduct&, const LowRankArrays&,
                              const TensorView&, Stream&) {
  reject("expand_low_rank_silu_mul");
}

// moe
void route(const RouteArgs&, Stream&) { reject("route"); }
bool norm_route(const NormRouteArgs&, Stream&) { reject("norm_route"); }
bool shared_gate(const SharedGateArgs&, Stream&) { reject("shared_gate"); }
void moe_experts(const MoeExpertsArgs&, Stream&) { reject("moe_experts"); }
bool adds_shared_expert(const MoeExpertsArgs&, Stream&) { reject("adds_shared_expert"); }

// fused
bool qkv_norm_rope_store(const LinearArgs&, const NormRopeArgs&, const StoreKvArgs&, Stream&) {
  reject("qkv_norm_rope_store");
}

// attention
DevicePlan make_plan(const AttentionPlanLimits&, Device) { reject("attention plan"); }
size_t plan_bytes(const AttentionPlanLimits&, Device) { reject("attention plan"); }
void plan(DevicePlan&, const QueryBatch&, const AttentionMask&, Stream&) { reject("attention plan"); }
void plan_inline(DevicePlan&, const QueryBatch&, const AttentionMask&, Stream&) { reject("attention plan"); }
bool try_plan_inline(DevicePlan&, const QueryBatch&) { reject("attention plan"); }
bool plan_depends_on_kv_len(const DevicePlan&, int) { reject("attention plan"); }

void attention(const AttentionArgs&, const DevicePlan&, Stream&) { reject("attention"); }
void attention(const AttentionArgs&, const DevicePlan&, Stream&, const AttentionTuning&) {
  reject("attention");
}
bool stores_new_keys(const AttentionArgs&, const DevicePlan&) { return false; }
bool has_head_descales(const AttentionArgs&, const DevicePlan&) { return false; }
bool multiplies_e4m3(Device, int64_t, int64_t, int64_t) { return false; }
void mla(const MlaArgs&, const DevicePlan&, Stream&) { reject("mla"); }
void merge(const MergeArgs&, Stream&) { reject("merge"); }
void merge_splits(const MergeSplitsArgs&, Stream&) { reject("merge_splits"); }

// sampling
void argmax(const TensorView&, View<int32_t>, Stream&) { reject("argmax"); }
void map_ids(View<const int32_t>, View<int32_t>, Stream&) { reject("map_ids"); }
void sample(const TensorView&, View<const SamplingRule>, View<int32_t>, Stream&) { reject("sample"); }
void probabilities(const TensorView&, View<const SamplingRule>, const TensorView&, Stream&) {
  reject("probabilities");
}
void edit_logits(const TensorView&, const LogitEdits&, Stream&) { reject("edit_logits"); }
void top_logprobs(const TensorView&, View<const int32_t>, View<float>, View<TokenLogprob>, Stream&) {
  reject("top_logprobs");
}
void token_logprobs(const TensorView&, const LogitEdits&, View<const int32_t>, View<const float>, View<float>,
                    Stream&) {
  reject("token_logprobs");
}

}  // namespace attend::kernels::cuda
