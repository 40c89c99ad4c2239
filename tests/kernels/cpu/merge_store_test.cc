// Merge and store suites on every instruction set, and bits that merging must not change.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "attend/kernels/attention/cpu/attention.h"
#include "attend/kernels/kv_store/cpu/store.h"
#include "tests/kernels/conformance/merge_suite.h"
#include "tests/kernels/conformance/store_suite.h"

namespace attend::kernels::cpu {
namespace {

TEST(CpuMerge, ConformsToTheReferenceOnEveryInstructionSet) {
  for (Isa isa : available_isas()) {
    SCOPED_TRACE(to_string(isa));
    conformance::run_merge_conformance([isa](const MergeArgs& args) { merge(args, isa); });
    conformance::run_merge_splits_conformance(
        [isa](const MergeSplitsArgs& args) { merge_splits(args, isa); });
  }
}

TEST(CpuStore, ConformsToTheReferenceOnEveryInstructionSet) {
  for (Isa isa : available_isas()) {
    SCOPED_TRACE(to_string(isa));
    conformance::run_store_kv_conformance([isa](const StoreKvArgs& args) { store_kv(args, isa); });
    conformance::run_store_mla_conformance([isa](const StoreMlaArgs& args) { store_mla(args, isa); });
  }
}

Tensor make_tensor(std::initializer_list<int64_t> shape, float first, float step) {
  Tensor made = Tensor::empty(shape, DType::kF32);
  for (float& value : made.span<float>()) {
    value = first;
    first += step;
  }
  return made;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.view().data, b.view().data, a.view().num_bytes()) == 0;
}

TEST(CpuMerge, KeepsAllBitsIfTheOtherPartIsEmpty) {
  const Tensor a = make_tensor({1, 4, 72}, -3.1f, 0.017f), lse = make_tensor({1, 4}, 0.3f, 0.7f);
  const Tensor nothing = make_tensor({1, 4, 72}, NAN, 0), empty = make_tensor({1, 4}, kEmptyLse, 0);
  for (Isa isa : available_isas()) {
    const Tensor out = make_tensor({1, 4, 72}, NAN, 0), merged = make_tensor({1, 4}, NAN, 0);
    merge({.out_a = a, .out_b = nothing, .lse_a = lse, .lse_b = empty, .out = out, .lse = merged}, isa);
    EXPECT_TRUE(same_bits(out, a) && same_bits(merged, lse)) << isa << ", the second is empty";
    merge({.out_a = nothing, .out_b = a, .lse_a = empty, .lse_b = lse, .out = out, .lse = merged}, isa);
    EXPECT_TRUE(same_bits(out, a) && same_bits(merged, lse)) << isa << ", the first is empty";
  }
}

}  // namespace
}  // namespace attend::kernels::cpu
