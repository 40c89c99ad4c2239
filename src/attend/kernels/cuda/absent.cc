// The GPU kernels of a build without CUDA: there are none.
#include "attend/base/without_cuda.h"
#include "attend/kernels/cuda/attention.h"
#include "attend/kernels/cuda/batch_arrays.h"
#include "attend/kernels/cuda/elementwise.h"
#include "attend/kernels/cuda/fill_random.h"
#include "attend/kernels/cuda/linear.h"
#include "attend/kernels/cuda/metadata.h"
#include "attend/kernels/cuda/qkv.h"
#include "attend/kernels/cuda/sampling.h"
#include "attend/kernels/cuda/turn_rows.h"

namespace attend::kernels::cuda {
namespace {

[[noreturn]] void refuse(std::string_view kernel) {
  fail(ErrorCode::kUnsupported, kernel, " on a GPU: ", kWithoutCuda);
}

}  // namespace

DevicePlan::DevicePlan(const AttentionPlanLimits&, Device) { refuse("attention plan"); }
size_t DevicePlan::num_bytes(const AttentionPlanLimits&, Device) { refuse("attention plan"); }
void DevicePlan::plan(const QueryBatch&, const Visibility&, Stream&) { refuse("attention plan"); }
void DevicePlan::plan_in_call(const QueryBatch&, const Visibility&, Stream&) { refuse("attention plan"); }

void derive_batch(const BatchSource&, const BatchArrays&, Stream&) { refuse("derive_batch"); }
void append_keys(const BatchSource&, const BatchArrays&, const StoreKvArgs&, Stream&) {
  refuse("append_keys");
}
void attention(const AttentionArgs&, const DevicePlan&, Stream&) { refuse("attention"); }
void mla(const MlaArgs&, const DevicePlan&, Stream&) { refuse("mla"); }
void merge(const MergeArgs&, Stream&) { refuse("merge"); }
void merge_splits(const MergeSplitsArgs&, Stream&) { refuse("merge_splits"); }
void store_kv(const StoreKvArgs&, Stream&) { refuse("store_kv"); }
void store_mla(const StoreMlaArgs&, Stream&) { refuse("store_mla"); }
void turn_rows(const TurnRowsArgs&, Stream&) { refuse("turn_rows"); }

void embedding(View<const int32_t>, const TensorView&, const TensorView&, Stream&) { refuse("embedding"); }
void rms_norm(const TensorView&, const TensorView&, float, const TensorView&, Stream&, float) {
  refuse("rms_norm");
}
void add_rms_norm(const TensorView&, const TensorView&, const TensorView&, float, const TensorView&,
                  Stream&) {
  refuse("add_rms_norm");
}
void silu_mul(const TensorView&, const TensorView&, Stream&) { refuse("silu_mul"); }
void norm_rope(const NormRopeArgs&, Stream&) { refuse("rope"); }
void norm_rope_store(const NormRopeArgs&, const StoreKvArgs&, Stream&) { refuse("rope"); }
bool qkv_norm_rope_store(const LinearArgs&, const NormRopeArgs&, const StoreKvArgs&, Stream&) {
  refuse("qkv_norm_rope_store");
}
void dynamic_angles(const DynamicAnglesArgs&, Stream&) { refuse("dynamic_angles"); }
void gather_rows(const TensorView&, View<const int32_t>, const TensorView&, Stream&) {
  refuse("gather_rows");
}
void fill_random(const TensorView&, const RandomNormal&, Stream&) { refuse("fill_random"); }
void linear(const LinearArgs&, Stream&) { refuse("linear"); }
bool gated_linear(const GatedLinearArgs&, Stream&) { refuse("gated_linear"); }
void build_page_table(const RequestRows&, int, int, View<int32_t>, Stream&) { refuse("build_page_table"); }
void build_csr(const RequestRows&, int, View<int32_t>, View<int32_t>, Stream&) { refuse("build_csr"); }
void write_new_slots(const NewSlots&, const TensorView&, Stream&) { refuse("write_new_slots"); }
void argmax(const TensorView&, View<int32_t>, Stream&) { refuse("argmax"); }
void sample(const TensorView&, View<const SamplingRule>, View<int32_t>, Stream&) { refuse("sample"); }

}  // namespace attend::kernels::cuda
