// Automatic selection with the real table, compared with SGLang's defaults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/backends/table.h"
#include "tests/backends/models.h"
#include "tests/support/error_message.h"

namespace attend::test {
namespace {

using enum Architecture;
using testing::HasSubstr;

struct Choice {
  Architecture architecture;
  Requirement model;
  std::string_view prefill, decode;
  int page_size;
};

void expect_choices(std::initializer_list<Choice> choices) {
  for (const Choice& choice : choices) {
    const Resolution resolution = resolve(choice.model, machine(choice.architecture), {}, backend_table());
    EXPECT_EQ(resolution.prefill->name, choice.prefill) << to_string(choice.architecture);
    EXPECT_EQ(resolution.decode->name, choice.decode) << to_string(choice.architecture);
    EXPECT_EQ(resolution.page_size, choice.page_size) << to_string(choice.architecture);
  }
}

TEST(Selection, OrdinaryModelFollowsTheHardware) {
  expect_choices({{kTuring, llama(), "flashinfer", "flashinfer", 16},
                  {kAmpere, llama(), "flashinfer", "flashinfer", 16},
                  {kAda, llama(), "flashinfer", "flashinfer", 16},
                  {kHopper, llama(), "fa3", "fa3", 16},
                  {kBlackwell, llama(), "trtllm_mha", "trtllm_mha", 64},
                  {kBlackwellGeforce, llama(), "flashinfer", "flashinfer", 16},
                  {kAmd, llama(), "aiter", "aiter", 16},
                  {kCpu, llama(), "cpu", "cpu", 64}});
}

TEST(Selection, LatentAttentionFollowsTheHardware) {
  expect_choices({{kTuring, deepseek_v3(), "triton", "triton", 16},
                  {kAmpere, deepseek_v3(), "triton", "triton", 16},
                  {kAda, deepseek_v3(), "triton", "triton", 16},
                  {kHopper, deepseek_v3(), "fa3", "fa3", 16},
                  {kBlackwell, deepseek_v3(), "flashinfer", "flashinfer", 16},
                  {kBlackwellGeforce, deepseek_v3(), "triton", "triton", 16},
                  {kAmd, deepseek_v3(), "aiter", "aiter", 16},
                  {kCpu, deepseek_v3(), "cpu", "cpu", 64}});
}

TEST(Selection, SparseAttentionRunsOnCpusByDsaOnly) {
  expect_choices({{kCpu, deepseek_v32(), "dsa", "dsa", 64},
                  {kCpu, deterministic(deepseek_v32()), "dsa", "dsa", 64},
                  {kCpu, with_drafts(deepseek_v32(), Speculation::kChain), "dsa", "dsa", 64}});
  for (const Architecture architecture : {kAmpere, kHopper, kBlackwell})
    EXPECT_THAT(testing_support::error_message(
                    ErrorCode::kUnsupported,
                    [&] { resolve(deepseek_v32(), machine(architecture), {}, backend_table()); }),
                testing::AllOf(HasSubstr("dsa runs MLA on cpu"),
                               HasSubstr("keys selected by an indexer: triton attends to all keys")));
}

TEST(Selection, LatentAttentionOnAmdDependsOnTheHeads) {
  Requirement model = deepseek_v3();
  for (const auto& [num_q_heads, backend] : {std::pair{16, "aiter"}, {128, "aiter"}, {32, "triton"}}) {
    model.num_q_heads = num_q_heads;
    expect_choices({{kAmd, model, backend, backend, 16}});
  }
}

TEST(Selection, SinksExcludeFlashInfer) {
  expect_choices({{kTuring, gpt_oss(), "triton", "triton", 16},
                  {kAmpere, gpt_oss(), "triton", "triton", 16},
                  {kAda, gpt_oss(), "triton", "triton", 16},
                  {kHopper, gpt_oss(), "fa3", "fa3", 16},
                  {kBlackwell, gpt_oss(), "trtllm_mha", "trtllm_mha", 64},
                  {kBlackwellGeforce, gpt_oss(), "triton", "triton", 16},
                  {kAmd, gpt_oss(), "triton", "triton", 16},
                  {kCpu, gpt_oss(), "cpu", "cpu", 64}});
}

TEST(Selection, ChunksExcludeFlashInfer) {
  expect_choices({{kTuring, llama4(), "triton", "triton", 16},
                  {kAmpere, llama4(), "triton", "triton", 16},
                  {kAda, llama4(), "triton", "triton", 16},
                  {kHopper, llama4(), "fa3", "fa3", 16},
                  {kBlackwell, llama4(), "trtllm_mha", "trtllm_mha", 64},
                  {kBlackwellGeforce, llama4(), "triton", "triton", 16},
                  {kAmd, llama4(), "aiter", "aiter", 16},
                  {kCpu, llama4(), "cpu", "cpu", 64}});
}

TEST(Selection, CapsAndWindowsFollowTheHardware) {
  expect_choices({{kAmpere, gemma2(), "flashinfer", "flashinfer", 16},
                  {kHopper, gemma2(), "fa3", "fa3", 16},
                  {kBlackwell, gemma2(), "trtllm_mha", "trtllm_mha", 64}});
}

TEST(Selection, UnequalHeadDimsSelectFa4OnBlackwell) {
  expect_choices({{kHopper, unequal_head_dims(), "fa3", "fa3", 16},
                  {kBlackwell, unequal_head_dims(), "fa4", "fa4", 128},
                  {kBlackwellGeforce, unequal_head_dims(), "flashinfer", "flashinfer", 16},
                  {kCpu, unequal_head_dims(), "cpu", "cpu", 64}});
}

TEST(Selection, DraftChainsDoNotChangeTheChoice) {
  expect_choices({{kHopper, with_drafts(llama(), Speculation::kChain), "fa3", "fa3", 16},
                  {kBlackwell, with_drafts(llama(), Speculation::kChain), "trtllm_mha", "trtllm_mha", 64},
                  {kAmpere, with_drafts(llama(), Speculation::kChain), "flashinfer", "flashinfer", 16},
                  {kCpu, with_drafts(llama(), Speculation::kChain), "cpu", "cpu", 64}});
}

TEST(Selection, DraftTreesFallBackToFlashInferAndTriton) {
  const auto tree = [](const Requirement& model) { return with_drafts(model, Speculation::kTree); };
  expect_choices({{kAmpere, tree(llama()), "flashinfer", "flashinfer", 16},
                  {kHopper, tree(llama()), "flashinfer", "flashinfer", 16},
                  {kHopper, tree(gpt_oss()), "triton", "triton", 16},
                  {kHopper, tree(llama4()), "triton", "triton", 16},
                  {kBlackwell, tree(llama()), "flashinfer", "flashinfer", 16},
                  {kBlackwell, tree(gpt_oss()), "triton", "triton", 16},
                  {kBlackwell, tree(unequal_head_dims()), "flashinfer", "flashinfer", 16},
                  {kHopper, tree(deepseek_v3()), "fa3", "fa3", 16},
                  // FlashInfer's MLA supports chains only.
                  {kBlackwell, tree(deepseek_v3()), "triton", "triton", 16},
                  {kAmd, tree(llama()), "aiter", "aiter", 1},
                  {kCpu, tree(llama()), "cpu", "cpu", 64}});
}

TEST(Selection, DeterministicInferenceSelectsBatchInvariantBackends) {
  expect_choices({{kTuring, deterministic(llama()), "flashinfer", "flashinfer", 16},
                  {kAmpere, deterministic(llama()), "fa3", "fa3", 16},
                  {kAda, deterministic(llama()), "fa3", "fa3", 16},
                  {kHopper, deterministic(llama()), "fa3", "fa3", 16},
                  {kBlackwell, deterministic(llama()), "flashinfer", "flashinfer", 16},
                  {kBlackwellGeforce, deterministic(llama()), "flashinfer", "flashinfer", 16},
                  {kAmd, deterministic(llama()), "triton", "triton", 16},
                  {kCpu, deterministic(llama()), "cpu", "cpu", 64},
                  // FA3 has no MLA here, and FlashInfer's MLA is not batch-invariant.
                  {kAmpere, deterministic(deepseek_v3()), "triton", "triton", 16},
                  {kHopper, deterministic(deepseek_v3()), "fa3", "fa3", 16},
                  {kBlackwell, deterministic(deepseek_v3()), "triton", "triton", 16}});
}

TEST(Selection, KvDtypeUnsupportedByFa3SelectsTriton) {
  expect_choices({{kHopper, with_kv(llama(), DType::kF8E4M3), "fa3", "fa3", 16},
                  {kHopper, with_kv(llama(), DType::kF8E5M2), "triton", "triton", 16},
                  {kAmpere, with_kv(llama(), DType::kF8E5M2), "flashinfer", "flashinfer", 16},
                  {kBlackwell, with_kv(llama(), DType::kF8E4M3), "trtllm_mha", "trtllm_mha", 64},
                  {kHopper, with_kv(deepseek_v3(), DType::kF8E5M2), "triton", "triton", 16}});
}

TEST(Selection, CrossAttentionExcludesTritonAndTrtllm) {
  expect_choices({{kAmpere, whisper(), "flashinfer", "flashinfer", 16},
                  {kHopper, whisper(), "fa3", "fa3", 16},
                  {kBlackwell, whisper(), "flashinfer", "flashinfer", 16},
                  {kBlackwellGeforce, whisper(), "flashinfer", "flashinfer", 16},
                  {kCpu, whisper(), "cpu", "cpu", 64}});
}

struct Split {
  Architecture architecture;
  Requirement model;
  BackendOptions options;
  std::string_view prefill, decode;
  int page_size;
};

TEST(Selection, OnePhaseUsesACommonPageSize) {
  const Split splits[] = {
      {kHopper, deepseek_v3(), {.decode_backend = "flashmla"}, "fa3", "flashmla", 64},
      {kHopper, deepseek_v3(), {.attention_backend = "flashmla"}, "fa3", "flashmla", 64},
      {kBlackwell, deepseek_v3(), {.attention_backend = "cutlass_mla"}, "flashinfer", "cutlass_mla", 128},
      {kBlackwell, deepseek_v3(), {.attention_backend = "trtllm_mla"}, "trtllm_mla", "trtllm_mla", 64},
      {kBlackwell,
       deepseek_v3(),
       {.prefill_backend = "flashinfer", .decode_backend = "trtllm_mla"},
       "flashinfer",
       "trtllm_mla",
       64},
      {kBlackwell, llama(), {.prefill_backend = "fa4"}, "fa4", "trtllm_mha", 128},
      {kHopper, llama(), {.decode_backend = "trtllm_mha"}, "fa3", "trtllm_mha", 64},
      {kHopper, llama(), {.attention_backend = "trtllm_mha"}, "trtllm_mha", "trtllm_mha", 64},
      {kBlackwellGeforce, llama(), {.attention_backend = "trtllm_mha"}, "trtllm_mha", "trtllm_mha", 64},
      {kBlackwell, deepseek_v3(), {.attention_backend = "cutedsl_mla"}, "trtllm_mla", "trtllm_mla", 64},
      {kBlackwell, deepseek_v3(), {.decode_backend = "tokenspeed_mla"}, "flashinfer", "trtllm_mla", 64},
      {kHopper, llama(), {.attention_backend = "fa4"}, "fa4", "fa4", 128},
      {kAmpere,
       llama(),
       {.prefill_backend = "fa3", .decode_backend = "flashinfer"},
       "fa3",
       "flashinfer",
       16}};
  for (const Split& split : splits) {
    const Resolution resolution =
        resolve(split.model, machine(split.architecture), split.options, backend_table());
    EXPECT_EQ(resolution.prefill->name, split.prefill) << resolution.why;
    EXPECT_EQ(resolution.decode->name, split.decode) << resolution.why;
    EXPECT_EQ(resolution.page_size, split.page_size) << resolution.why;
  }
}

TEST(Selection, RequestedPageSizeSelectsTheNextBackend) {
  const Resolution resolution = resolve(llama(), machine(kBlackwell), {.page_size = 1}, backend_table());
  EXPECT_EQ(resolution.prefill->name, "flashinfer");
  EXPECT_EQ(resolution.page_size, 1);
  EXPECT_THAT(resolution.why, HasSubstr("first choice for blackwell that supports this model"));
}

TEST(Selection, EveryBackendCanBeRequestedOnACpu) {
  for (const BackendEntry& entry : backend_table()) {
    const Requirement model = entry.mha.supports_any_phase() ? llama()
                              : entry.mla.indexer            ? deepseek_v32()
                                                             : deepseek_v3();
    const Resolution resolution =
        resolve(model, machine(kCpu), {.attention_backend = std::string(entry.name)}, backend_table());
    EXPECT_EQ(resolution.decode, &entry);
    const bool at_home = entry.capability(model.kind).decode.contains(kCpu);
    EXPECT_EQ(resolution.why.find("its contract runs over the CPU kernels") == std::string::npos, at_home)
        << resolution.why;
  }
}

}  // namespace
}  // namespace attend::test
