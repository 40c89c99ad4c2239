// Reference of MLA, compared with manual results and with attention over the same latent rows.
#include <gtest/gtest.h>

#include <cmath>

#include "attend/kernels/attention/attention.h"
#include "tests/kernels/conformance/cases/built_case.h"
#include "tests/kernels/conformance/cases/cases.h"

namespace attend::conformance {
namespace {

TEST(ReferenceMla, ScoresTheWholeRowAndAveragesItsLatentPart) {
  // Rank 8, rope 8, two keys. Key 1: latent (1, 2, 0, ...), rope (3, 0, ...). The row is stored divided by 2.
  std::vector<float> q(8, 0.0f), q_rope(8, 0.0f), latent(2 * 16, 0.0f), out(8), lse(1);
  q[0] = 1.0f;
  q_rope[0] = 2.0f;
  latent[16] = 0.5f;
  latent[17] = 1.0f;
  latent[24] = 1.5f;
  const std::vector<int32_t> cu_seqlen_q = {0, 1}, seqlen_kv = {2}, cu_seqlen_kv = {0, 2};
  kernels::MlaArgs args;
  args.q = TensorView::contiguous(q.data(), DType::kF32, {1, 1, 8});
  args.q_rope = TensorView::contiguous(q_rope.data(), DType::kF32, {1, 1, 8});
  args.out = TensorView::contiguous(out.data(), DType::kF32, {1, 1, 8});
  args.lse = TensorView::contiguous(lse.data(), DType::kF32, {1, 1});
  args.latent = TensorView::contiguous(latent.data(), DType::kF32, {2, 1, 16});
  args.index = {.kind = kernels::KvIndexKind::kContiguous, .indptr = cu_seqlen_kv.data()};
  args.scale_kv = 2.0f;
  args.batch.cu_seqlen_q = cu_seqlen_q;
  args.batch.seqlen_kv = seqlen_kv;
  args.batch.max_seqlen_q = 1;
  args.score.scale = std::log(3.0f) / 7.0f;  // q.k = 1 * 1 + 2 * 3 = 7
  kernels::reference::mla(args);
  // Key 1 has weight 3, key 0 weight 1; key 1's values are 1 and 2.
  EXPECT_FLOAT_EQ(out[0], 0.75f);
  EXPECT_FLOAT_EQ(out[1], 1.5f);
  EXPECT_FLOAT_EQ(out[2], 0.0f);
  EXPECT_FLOAT_EQ(lse[0], std::log(4.0f));
}

TEST(ReferenceMla, IsMultiQueryAttentionOverTheLatentRows) {
  for (AttentionCase c : mla_conformance_cases()) {
    c.out_dtype = DType::kF32;
    c.strided = false;
    BuiltCase as_mla(c), as_attention(c);
    kernels::reference::mla(as_mla.mla_args);
    kernels::reference::attention(as_attention.args);
    const View<float> out = as_mla.args.out.span<float>(), wanted = as_attention.args.out.span<float>();
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_NEAR(out[i], wanted[i], 1e-6f + 1e-6f * std::abs(wanted[i])) << c;
  }
}

}  // namespace
}  // namespace attend::conformance
