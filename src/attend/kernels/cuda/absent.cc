// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/cuda/attention.h"

namespace attend::kernels::cuda {
namespace {

[[noreturn]] void refuse(std::string_view kernel) {
  fail(ErrorCode::kUnsupported, kernel, " on a GPU: this build was made without CUDA");
}

}  // namespace

DevicePlan::DevicePlan(const AttentionPlanLimits&, Device) { refuse("attention plan"); }
size_t DevicePlan::num_bytes(const AttentionPlanLimits&, Device) { refuse("attention plan"); }
void DevicePlan::plan(const QueryBatch&, const Visibility&, Stream&) { refuse("attention plan"); }

void attention(const AttentionArgs&, const DevicePlan&, Stream&) { refuse("attention"); }
void mla(const MlaArgs&, Stream&) { refuse("mla"); }
void merge(const MergeArgs&, Stream&) { refuse("merge"); }
void merge_splits(const MergeSplitsArgs&, Stream&) { refuse("merge_splits"); }
void store_kv(const StoreKvArgs&, Stream&) { refuse("store_kv"); }
void store_mla(const StoreMlaArgs&, Stream&) { refuse("store_mla"); }

}  // namespace attend::kernels::cuda
