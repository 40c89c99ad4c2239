// The GPU kernels of a build without CUDA: there are none, and what would call one throws
// Error(kUnsupported).
#include "attend/base/without_cuda.h"

#include <string_view>

#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/attention/cuda/plan.h"
#include "attend/kernels/common/cuda/fill_random.h"
#include "attend/kernels/fused/cuda/qkv.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/kv_store/cuda/store.h"
#include "attend/kernels/metadata/cuda/metadata.h"
#include "attend/kernels/moe/cuda/moe.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/sampling/cuda/sampling.h"

namespace attend::kernels::cuda {
namespace {

[[noreturn]] void refuse(std::string_view kernel) {
  fail(ErrorCode::kUnsupported, kernel, " on a GPU: ", kWithoutCuda);
}

}  // namespace

// common
void fill_random(const TensorView&, const RandomNormal&, Stream&) { refuse("fill_random"); }

// metadata
void build_page_table(const RequestRows&, int, int, View<int32_t>, Stream&) { refuse("build_page_table"); }
void build_csr(const RequestRows&, int, View<int32_t>, View<int32_t>, Stream&) { refuse("build_csr"); }
void write_new_slots(const NewSlots&, const TensorView&, Stream&) { refuse("write_new_slots"); }

// kv_store
void derive_batch(const BatchSource&, const BatchArrays&, Stream&) { refuse("derive_batch"); }
void append_keys(const BatchSource&, const BatchArrays&, const StoreKvArgs&, Stream&) {
  refuse("append_keys");
}
void gather_latent(const GatherLatentArgs&, Stream&) { refuse("gather_latent"); }
void lengths_of(View<const int32_t>, View<int32_t>, Stream&) { refuse("lengths_of"); }
void copy_to_heads(const TensorView&, const TensorView&, Stream&) { refuse("copy_to_heads"); }
void compact_slots(const CompactSlotsArgs&, Stream&) { refuse("compact_slots"); }
void dequantize_rows(const DequantizeRowsArgs&, Stream&) { refuse("dequantize_rows"); }
void store_kv(const StoreKvArgs&, Stream&) { refuse("store_kv"); }
void store_mla(const StoreMlaArgs&, Stream&) { refuse("store_mla"); }

// norm_rope
void latent_norm_rope_store(const LatentNormRopeStoreArgs&, Stream&) { refuse("latent_norm_rope_store"); }
void embedding(View<const int32_t>, const TensorView&, const TensorView&, float, Stream&) {
  refuse("embedding");
}
void rms_norm(const TensorView&, const TensorView&, float, const TensorView&, Stream&, float) {
  refuse("rms_norm");
}
void add_rms_norm(const TensorView&, const TensorView&, const TensorView&, float, const TensorView&, Stream&,
                  float) {
  refuse("add_rms_norm");
}
void rms_norm_add(const TensorView&, const TensorView&, float, const TensorView&, Stream&) {
  refuse("rms_norm_add");
}
void add_embedding(View<const int32_t>, const TensorView&, const TensorView&, Stream&) {
  refuse("add_embedding");
}
void layer_norm(const TensorView&, const TensorView&, const TensorView&, const TensorView&, float,
                const TensorView&, Stream&) {
  refuse("layer_norm");
}
void gelu(const TensorView&, Stream&) { refuse("gelu"); }
void gelu_tanh(const TensorView&, Stream&) { refuse("gelu_tanh"); }
void silu_mul(const TensorView&, const TensorView&, Stream&) { refuse("silu_mul"); }
void gelu_mul(const TensorView&, const TensorView&, Stream&) { refuse("gelu_mul"); }
void gelu_tanh_mul(const TensorView&, const TensorView&, Stream&) { refuse("gelu_tanh_mul"); }
void soft_cap(const TensorView&, float, Stream&) { refuse("soft_cap"); }
void norm_rope(const NormRopeArgs&, Stream&) { refuse("rope"); }
void norm_rope_store(const NormRopeArgs&, const StoreKvArgs&, Stream&) { refuse("rope"); }
void scale_by_position(const TensorView&, View<const int32_t>, const QueryTemperature&, Stream&) {
  refuse("scale_by_position");
}
void dynamic_angles(const DynamicAnglesArgs&, Stream&) { refuse("dynamic_angles"); }
void rope_rows_by_length(const RopeRowsByLengthArgs&, Stream&) { refuse("rope_rows_by_length"); }
void gather_rows(const TensorView&, View<const int32_t>, const TensorView&, Stream&) {
  refuse("gather_rows");
}
void apply_rope_rows(const RopeRowsArgs&, Stream&) { refuse("apply_rope_rows"); }

// gemm
void head_linear(const HeadLinearArgs&, Stream&) { refuse("head_linear"); }
bool linear(const LinearArgs&, Stream&) { refuse("linear"); }
bool gated_linear(const GatedLinearArgs&, Stream&) { refuse("gated_linear"); }

// moe
void route(const RouteArgs&, Stream&) { refuse("route"); }
bool norm_route(const NormRouteArgs&, Stream&) { refuse("norm_route"); }
void moe_experts(const MoeExpertsArgs&, Stream&) { refuse("moe_experts"); }

// fused
bool qkv_norm_rope_store(const LinearArgs&, const NormRopeArgs&, const StoreKvArgs&, Stream&) {
  refuse("qkv_norm_rope_store");
}

// attention
DevicePlan make_plan(const AttentionPlanLimits&, Device) { refuse("attention plan"); }
size_t plan_bytes(const AttentionPlanLimits&, Device) { refuse("attention plan"); }
void plan(DevicePlan&, const QueryBatch&, const AttentionMask&, Stream&) { refuse("attention plan"); }
void plan_inline(DevicePlan&, const QueryBatch&, const AttentionMask&, Stream&) { refuse("attention plan"); }
bool try_plan_inline(DevicePlan&, const QueryBatch&) { refuse("attention plan"); }
bool plan_depends_on_kv_len(const DevicePlan&, int) { refuse("attention plan"); }

void attention(const AttentionArgs&, const DevicePlan&, Stream&) { refuse("attention"); }
void attention(const AttentionArgs&, const DevicePlan&, Stream&, const AttentionTuning&) {
  refuse("attention");
}
bool stores_new_keys(const AttentionArgs&, const DevicePlan&) { return false; }
bool has_head_descales(const AttentionArgs&, const DevicePlan&) { return false; }
bool multiplies_e4m3(Device, int64_t, int64_t, int64_t) { return false; }
void mla(const MlaArgs&, const DevicePlan&, Stream&) { refuse("mla"); }
void merge(const MergeArgs&, Stream&) { refuse("merge"); }
void merge_splits(const MergeSplitsArgs&, Stream&) { refuse("merge_splits"); }

// sampling
void argmax(const TensorView&, View<int32_t>, Stream&) { refuse("argmax"); }
void sample(const TensorView&, View<const SamplingRule>, View<int32_t>, Stream&) { refuse("sample"); }
void probabilities(const TensorView&, View<const SamplingRule>, const TensorView&, Stream&) {
  refuse("probabilities");
}
void edit_logits(const TensorView&, const LogitEdits&, Stream&) { refuse("edit_logits"); }
void top_logprobs(const TensorView&, View<const int32_t>, View<float>, View<TokenLogprob>, Stream&) {
  refuse("top_logprobs");
}
void token_logprobs(const TensorView&, const LogitEdits&, View<const int32_t>, View<const float>, View<float>,
                    Stream&) {
  refuse("token_logprobs");
}

}  // namespace attend::kernels::cuda
