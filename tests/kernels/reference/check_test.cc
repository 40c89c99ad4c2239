// Arguments that the kernel entries reject, and error messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "attend/base/error.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/kv_store/store.h"
#include "tests/kernels/conformance/cases/built_case.h"

namespace attend::conformance {
namespace {

using ::testing::HasSubstr;

// Returns the message of the Error(code) that `fn` throws.
std::string error_text(const std::function<void()>& fn, ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    return error.what();
  }
  return "accepted";
}

class CheckAttention : public ::testing::Test {
 protected:
  std::string rejected(ErrorCode code = ErrorCode::kInvalidArgument) const {
    return error_text([this] { check(args_); }, code);
  }

  BuiltCase built_{{.requests = {{3, 9}, {1, 5}},
                    .index = kernels::KvIndexKind::kPageTable,
                    .page_size = 4,
                    .tree = TreeShape::kChain}};
  kernels::AttentionArgs args_ = built_.args;
};

TEST_F(CheckAttention, AcceptsAValidProblem) { EXPECT_NO_THROW(check(args_)); }

TEST_F(CheckAttention, RejectsMissingTensors) {
  args_.q = {};
  EXPECT_EQ(rejected(), "q: not given");
}

TEST_F(CheckAttention, RejectsTensorsOfAnotherRank) {
  args_.kv.v.rank = 3;
  EXPECT_THAT(rejected(), HasSubstr("expected 4 dimensions"));
}

TEST_F(CheckAttention, RejectsMismatchedShapes) {
  args_.out = args_.out.slice(0, 0, 2);
  EXPECT_EQ(rejected(), "out float32[2, 4, 64] on cpu: expected 4 in dimension 0");
}

TEST_F(CheckAttention, RejectsQueryHeadsThatKvHeadsDoNotDivide) {
  args_.q = args_.q.slice(1, 0, 3);
  args_.out = args_.out.slice(1, 0, 3);
  EXPECT_EQ(rejected(), "num_q_heads 3: expected a multiple of num_kv_heads 2");
}

TEST_F(CheckAttention, RejectsHeadDimsThatAreNotMultiplesOf8) {
  args_.q = args_.q.slice(2, 0, 60);
  args_.kv.k = args_.kv.k.slice(3, 0, 60);
  EXPECT_EQ(rejected(ErrorCode::kUnsupported),
            "head dims 60/64: expected multiples of 8 up to 256, or 512/512 or 576/512");
}

TEST_F(CheckAttention, RejectsHeadDimsBeyond256) {
  for (TensorView* view : {&args_.q, &args_.kv.k}) view->shape[static_cast<size_t>(view->rank) - 1] = 264;
  EXPECT_THAT(rejected(ErrorCode::kUnsupported), HasSubstr("head dims 264/64"));
}

TEST_F(CheckAttention, RejectsAGapBetweenElementsOfARow) {
  args_.kv.k.strides[3] = 2;
  EXPECT_THAT(rejected(ErrorCode::kUnsupported), HasSubstr("stride 2 in the last dimension, expected 1"));
}

TEST_F(CheckAttention, RejectsE5m2QueriesAndFp8QueriesOfAnotherDtypeThanKeys) {
  args_.q.dtype = DType::kF8E4M3;
  EXPECT_THAT(rejected(), HasSubstr("with q fp8_e4m3[4, 4, 64] on cpu: expected fp8_e4m3, as q"));
  args_.q.dtype = args_.kv.k.dtype = args_.kv.v.dtype = DType::kF8E5M2;
  EXPECT_THAT(rejected(), HasSubstr("expected float32, float16, bfloat16 or fp8_e4m3"));
}

TEST_F(CheckAttention, RejectsDescalesOfHeadsWithoutFp8) {
  const float scale = 1.0f;
  args_.k_scales.data = &scale;
  EXPECT_THAT(rejected(), HasSubstr("k_scales: expected none with q float32"));
}

TEST_F(CheckAttention, RejectsNewKeysOfDifferentNumbersPerRequest) {
  const Tensor three = Tensor::empty({3, 2, 64}, DType::kF32), four = Tensor::empty({4, 2, 64}, DType::kF32);
  args_.new_keys = {.k = three.view(), .v = three.view(), .capacity = 12};
  EXPECT_EQ(
      rejected(),
      "new_keys.k float32[3, 2, 64] on cpu: expected the same number of keys for each of the 2 requests");
  args_.new_keys.k = four.view();
  EXPECT_EQ(rejected(), "new_keys.v float32[3, 2, 64] on cpu: expected 4 in dimension 0");
  args_.new_keys.v = four.view();
  EXPECT_NO_THROW(check(args_));
}

TEST_F(CheckAttention, RejectsNewKeysOnACpu) {
  const Tensor keys = Tensor::empty({2, 2, 64}, DType::kF32);
  args_.new_keys = {.k = keys.view(), .v = keys.view(), .capacity = 12};
  kernels::AttentionPlan plan({.max_reqs = 2,
                               .max_tokens = 4,
                               .max_kv_tokens = 14,
                               .num_q_heads = 4,
                               .num_kv_heads = 2,
                               .head_dim_v = 64},
                              Device{});
  Stream stream;
  plan.plan(args_.batch, args_.attention_mask, stream);
  EXPECT_THAT(
      error_text([&] { kernels::attention(args_, plan, stream); }, ErrorCode::kUnsupported),
      HasSubstr("new_keys float32[2, 2, 64] on cpu: supported only if stores_new_keys() returns true"));
}

TEST_F(CheckAttention, RejectsIntegersAsKv) {
  args_.kv.k.dtype = args_.kv.v.dtype = DType::kI32;
  EXPECT_THAT(rejected(), HasSubstr("expected float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2"));
}

TEST_F(CheckAttention, RejectsKAndVOfDifferentDTypes) {
  args_.kv.v.dtype = DType::kF16;
  EXPECT_EQ(rejected(), "k is float32, v is float16: expected the same");
}

TEST_F(CheckAttention, RejectsScalesThatAreNotPositive) {
  for (float scale : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    args_.kv.v_scale = scale;
    EXPECT_THAT(rejected(), HasSubstr("v_scale"));
  }
}

TEST_F(CheckAttention, RejectsAnLseThatIsNotFloat32) {
  args_.lse.dtype = DType::kBF16;
  EXPECT_THAT(rejected(), HasSubstr("expected float32"));
}

TEST_F(CheckAttention, RejectsCuSeqlenQOfAnotherBatch) {
  args_.batch.cu_seqlen_q = args_.batch.cu_seqlen_q.first(2);
  EXPECT_EQ(rejected(), "cu_seqlen_q of 2 entries for 2 requests: expected one more");
}

TEST_F(CheckAttention, RejectsATreeMaskTooNarrowForTheLongestRequest) {
  args_.batch.max_seqlen_q = 65;
  EXPECT_EQ(rejected(), "tree_mask_words 1: expected ceil(max_seqlen_q / 64) = 2");
}

TEST_F(CheckAttention, RejectsATreeMaskOfTooFewTokens) {
  args_.batch.tree_mask = args_.batch.tree_mask.first(3);
  EXPECT_EQ(rejected(), "tree_mask of 3 words: expected 4");
}

TEST_F(CheckAttention, RejectsATreeMaskWithoutPositions) {
  args_.batch.positions = {};
  EXPECT_EQ(rejected(), "positions of 0 tokens: a tree mask needs 4");
}

TEST_F(CheckAttention, RejectsATreeMaskWithoutCausality) {
  args_.attention_mask.causal = false;
  EXPECT_EQ(rejected(), "tree mask: expected causal attention");
}

TEST_F(CheckAttention, RejectsPageSizesThatAreNotPowersOfTwoUpTo256) {
  for (int page_size : {0, 3, 48, 512}) {
    args_.kv.index.page_size = page_size;
    EXPECT_EQ(rejected(),
              "page_size " + std::to_string(page_size) + ": expected a power of two from 1 to 256");
  }
}

TEST_F(CheckAttention, RejectsAPageSizeOtherThanTheCaches) {
  args_.kv.index.page_size = 8;
  EXPECT_EQ(rejected(), "page_size 8 in the index, 4 in the cache");
}

TEST_F(CheckAttention, RejectsAnIndexWithoutItsArrays) {
  args_.kv.index.table = nullptr;
  EXPECT_EQ(rejected(), "page table: table is needed");
  args_.kv.index.kind = kernels::KvIndexKind::kRequestRows;
  EXPECT_THAT(rejected(), HasSubstr("request rows"));
  args_.kv.index.kind = kernels::KvIndexKind::kCsr;
  EXPECT_THAT(rejected(), HasSubstr("CSR"));
  args_.kv.index.kind = kernels::KvIndexKind::kContiguous;
  EXPECT_THAT(rejected(), HasSubstr("cu_seqlen_kv"));
}

TEST_F(CheckAttention, RejectsPagesOfContiguousKv) {
  args_.kv.index.kind = kernels::KvIndexKind::kContiguous;
  args_.kv.index.indptr = built_.tokens.cu_seqlen_q.data();
  EXPECT_EQ(rejected(), "page_size 4: contiguous K/V has 1");
}

TEST_F(CheckAttention, RejectsASlotMapOverPageIds) {
  args_.kv.index.slot_map = built_.tokens.cu_seqlen_q.data();
  EXPECT_THAT(rejected(), HasSubstr("slot_map: expected null; only request rows are translated"));
}

TEST_F(CheckAttention, RejectsNegativeWindowsAndChunks) {
  args_.attention_mask.window_left = -2;
  EXPECT_EQ(rejected(), "window_left -2: at least 0, or -1 for none");
  args_.attention_mask = {.causal = true, .window_left = -1, .chunk = -4};
  EXPECT_EQ(rejected(), "chunk -4: at least 1, or 0 for none");
}

TEST_F(CheckAttention, RejectsANegativeCapAndSinksOfOtherHeads) {
  const std::vector<float> sinks(3);
  args_.score.sinks = sinks;
  EXPECT_EQ(rejected(), "sinks: 3 for 4 query heads");
  args_.score.logit_cap = -30.0f;
  EXPECT_EQ(rejected(), "logit_cap -30: above 0, or 0 for none");
}

class CheckMla : public ::testing::Test {
 protected:
  std::string rejected(ErrorCode code = ErrorCode::kInvalidArgument) const {
    return error_text([this] { check(args_); }, code);
  }

  BuiltCase built_{{.requests = {{2, 9}},
                    .num_q_heads = 16,
                    .num_kv_heads = 1,
                    .head_dim_qk = 576,
                    .head_dim_v = 512,
                    .rope_dim = 64,
                    .page_size = 4}};
  kernels::MlaArgs args_ = built_.mla_args;
};

TEST_F(CheckMla, AcceptsAValidProblem) { EXPECT_NO_THROW(check(args_)); }

TEST_F(CheckMla, RejectsALatentRowOfAnotherWidth) {
  args_.latent = args_.latent.slice(2, 0, 512);
  EXPECT_THAT(rejected(), HasSubstr("expected 576 in dimension 2"));
}

TEST_F(CheckMla, RejectsRanksAndRopesOutOfRange) {
  args_.q_rope = args_.q_rope.slice(2, 0, 60);
  args_.latent = args_.latent.slice(2, 0, 572);
  EXPECT_EQ(rejected(ErrorCode::kUnsupported),
            "kv_lora_rank 512 and rope_dim 60: expected multiples of 8 up to 512 and 64");
}

TEST_F(CheckMla, RejectsQueryPartsOfDifferentDTypes) {
  args_.q_rope.dtype = DType::kBF16;
  EXPECT_EQ(rejected(), "q is float32, q_rope is bfloat16: expected the same");
}

TEST_F(CheckMla, RejectsAScaleOfZero) {
  args_.scale_kv = 0.0f;
  EXPECT_EQ(rejected(), "scale_kv 0: above 0");
}

TEST(CheckMerge, RejectsPartsOfOtherShapes) {
  const Tensor out = Tensor::zeros({2, 3, 8}, DType::kF32), lse = Tensor::zeros({2, 3}, DType::kF32);
  const Tensor short_lse = Tensor::zeros({1, 3}, DType::kF32);
  kernels::MergeArgs args{.out_a = out, .out_b = out, .lse_a = lse, .lse_b = lse, .out = out, .lse = lse};
  EXPECT_NO_THROW(check(args));
  args.lse_b = short_lse;
  EXPECT_EQ(error_text([&] { check(args); }), "lse_b float32[1, 3] on cpu: expected 2 in dimension 0");
  args.lse_b = {};
  EXPECT_EQ(error_text([&] { check(args); }), "lse_b: not given");
}

TEST(CheckMerge, RejectsSplitsThatAreNotFloat32) {
  const Tensor parts = Tensor::zeros({4, 2, 3, 8}, DType::kBF16),
               lses = Tensor::zeros({4, 2, 3}, DType::kF32);
  const Tensor out = Tensor::zeros({2, 3, 8}, DType::kF32), lse = Tensor::zeros({2, 3}, DType::kF32);
  const kernels::MergeSplitsArgs args{
      .partial_out = parts, .partial_lse = lses, .sinks = {}, .out = out, .lse = lse};
  EXPECT_EQ(error_text([&] { check(args); }), "partial results are bfloat16 and float32: expected float32");
}

TEST(CheckMerge, RejectsNoSplits) {
  const Tensor parts = Tensor::zeros({0, 2, 3, 8}, DType::kF32), lses = Tensor::zeros({0, 2, 3}, DType::kF32);
  const Tensor out = Tensor::zeros({2, 3, 8}, DType::kF32);
  const kernels::MergeSplitsArgs args{
      .partial_out = parts, .partial_lse = lses, .sinks = {}, .out = out, .lse = {}};
  EXPECT_THAT(error_text([&] { check(args); }), HasSubstr("no splits"));
}

TEST(CheckStore, RejectsFewerSlotsThanTokens) {
  const Tensor rows = Tensor::zeros({3, 2, 8}, DType::kF32),
               cache = Tensor::zeros({4, 16, 2, 8}, DType::kF32);
  const std::vector<int32_t> slots = {1, 2};
  const kernels::StoreKvArgs args{.k = rows, .v = rows, .to = {.k = cache, .v = cache, .slots = slots}};
  EXPECT_EQ(error_text([&] { check(args); }), "slots: 2 for 3 tokens");
}

TEST(CheckStore, RejectsACacheOfOtherHeads) {
  const Tensor rows = Tensor::zeros({1, 2, 8}, DType::kF32),
               cache = Tensor::zeros({4, 16, 3, 8}, DType::kF32);
  const std::vector<int32_t> slots = {1};
  const kernels::StoreKvArgs args{.k = rows, .v = rows, .to = {.k = cache, .v = cache, .slots = slots}};
  EXPECT_EQ(error_text([&] { check(args); }),
            "k_cache float32[4, 16, 3, 8] on cpu: expected 2 in dimension 2");
}

TEST(CheckStore, RejectsALatentCacheOfAnotherWidth) {
  const Tensor latent = Tensor::zeros({1, 16}, DType::kF32), rope = Tensor::zeros({1, 8}, DType::kF32);
  const Tensor cache = Tensor::zeros({4, 16, 16}, DType::kF32);
  const std::vector<int32_t> slots = {1};
  const kernels::StoreMlaArgs args{.latent = latent, .rope = rope, .to = {.k = cache, .slots = slots}};
  EXPECT_EQ(error_text([&] { check(args); }), "cache float32[4, 16, 16] on cpu: expected 24 in dimension 2");
}

}  // namespace
}  // namespace attend::conformance
