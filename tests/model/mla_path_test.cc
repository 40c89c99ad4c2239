// Choice between absorbed and expanded latent attention for a step, and the chunks of a prefix.
#include "attend/model/modules/mla/mla_path.h"

#include <gtest/gtest.h>

#include <vector>

namespace attend {
namespace {

constexpr MlaSpec kV3Spec{.num_heads = 128,
                          .q_lora_rank = 1536,
                          .kv_lora_rank = 512,
                          .nope_dim = 128,
                          .rope_dim = 64,
                          .v_dim = 128};

struct Extent {
  int seqlen_kv, seqlen_q;
};

ForwardBatch batch_of_extents(const std::vector<Extent>& requests, ForwardMode mode = ForwardMode::kExtend) {
  ForwardBatch batch;
  batch.mode = mode;
  batch.num_reqs = static_cast<int>(requests.size());
  PrefixInfo prefix;
  for (const auto& [seqlen_kv, seqlen_q] : requests) {
    batch.num_tokens += seqlen_q;
    prefix.add(seqlen_kv, seqlen_q);
  }
  batch.prefix = prefix;
  return batch;
}

TEST(PrefixInfo, CountsKeysPairsAndTheLongestPrefix) {
  PrefixInfo prefix;
  prefix.add(10, 3);
  prefix.add(4, 4);
  EXPECT_EQ(prefix.num_kv_tokens, 14);
  EXPECT_EQ(prefix.num_pairs, 8 + 9 + 10 + 1 + 2 + 3 + 4);
  EXPECT_EQ(prefix.max_prefix_len, 7);
}

TEST(MlaPath, CountsTheMultiplicationsOfBothForms) {
  const ForwardBatch batch = batch_of_extents({{1024, 512}});
  const int64_t pairs = 512 * 512 + 512 * 513 / 2;
  EXPECT_DOUBLE_EQ(absorbed_products(kV3Spec, 512, *batch.prefix), 512.0 * 256 * 512 + 1088.0 * pairs);
  EXPECT_DOUBLE_EQ(expanded_products(kV3Spec, *batch.prefix), 1024.0 * 256 * 512 + 320.0 * pairs);
}

TEST(MlaPath, ExpandsPromptsButNotAFewTokensAfterALongPrefix) {
  EXPECT_TRUE(use_expanded(kV3Spec, batch_of_extents({{2048, 2048}, {7, 7}}), false));
  EXPECT_TRUE(use_expanded(kV3Spec, batch_of_extents({{8192 + 1024, 1024}}), false));
  EXPECT_FALSE(use_expanded(kV3Spec, batch_of_extents({{8192 + 16, 16}}), false));
  EXPECT_FALSE(use_expanded(kV3Spec, batch_of_extents({{512, 512}, {65536, 1}}), false))
      << "another request decodes in the same step";
}

TEST(MlaPath, IsAbsorbedInDeterministicModeOrWithoutSupport) {
  const std::vector<Extent> prompt{{512, 512}};
  EXPECT_FALSE(use_expanded(kV3Spec, batch_of_extents(prompt), true)) << "batch-invariant";
  EXPECT_FALSE(use_expanded(kV3Spec, batch_of_extents(prompt, ForwardMode::kTargetVerify), false));
  EXPECT_FALSE(use_expanded(kV3Spec, batch_of_extents(prompt, ForwardMode::kDecode), false));
  ForwardBatch unknown = batch_of_extents(prompt);
  unknown.prefix.reset();
  EXPECT_FALSE(use_expanded(kV3Spec, unknown, false)) << "the host has no lengths";
  MlaSpec wide = kV3Spec;
  wide.nope_dim = 256;
  EXPECT_FALSE(use_expanded(wide, batch_of_extents(prompt), false)) << "no kernel supports heads of 320";
}

// Four requests with chunks of 256 keys each.
TEST(MlaPath, SplitsPrefixesIntoChunksThatFit) {
  const ForwardBatch batch = batch_of_extents({{256 + 1, 1}, {512 + 1, 1}, {768 + 1, 1}, {1024 + 1, 1}});
  const PrefixChunks chunks = prefix_chunks(batch, 1024);
  EXPECT_EQ(chunks.keys_per_request, 256);
  EXPECT_EQ(chunks.num_chunks, 4);
  EXPECT_EQ(prefix_chunks(batch_of_extents({{9, 9}}), 1024).num_chunks, 0);
  EXPECT_EQ(prefix_chunks(batch, 4).num_chunks, 1024) << "chunks of one key per request";
}

}  // namespace
}  // namespace attend
