// Combinations that SGLang rejects (in arguments, factories, constructors, or at the first batch that has
// them), and combinations for which its rules have no valid result. The resolver rejects all of them with a
// reason before weights are loaded. Features without a counterpart in attend (NVFP4, MXFP8, score_mod,
// context parallelism, multi-item scoring) are omitted.
#include "attend/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/attention/unsupported_backends.h"
#include "attend/backends/table.h"
#include "tests/backends/models.h"
#include "tests/support/error_message.h"

namespace attend::test {
namespace {

using enum Architecture;
using testing::HasSubstr;

struct Rejected {
  Architecture architecture;
  Requirement model;
  BackendOptions options;
  std::string reason;
};

void expect_errors(std::initializer_list<Rejected> rejected) {
  for (const Rejected& one : rejected) {
    try {
      const Resolution resolution =
          resolve(one.model, machine(one.architecture), one.options, backend_table());
      ADD_FAILURE() << "resolved to " << resolution.why << ", expected " << one.reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr(one.reason));
    }
  }
}

TEST(Rejection, NamesAnUnsupportedArchitecture) {
  expect_errors(
      {{kBlackwell,
        llama(),
        {.attention_backend = "fa3"},
        "blackwell: fa3 runs MHA on ampere, ada, hopper (prefill)"},
       {kAmpere, deepseek_v3(), {.attention_backend = "fa3"}, "ampere: fa3 runs MLA on hopper (decode)"},
       {kAmpere,
        llama(),
        {.attention_backend = "trtllm_mha"},
        "ampere: trtllm_mha runs MHA on hopper, blackwell, blackwell-geforce (prefill)"},
       {kAmpere,
        llama(),
        {.decode_backend = "trtllm_mha"},
        "ampere: trtllm_mha runs MHA on hopper, blackwell, blackwell-geforce (decode)"},
       {kHopper,
        deepseek_v3(),
        {.attention_backend = "trtllm_mla"},
        "hopper: trtllm_mla runs MLA on blackwell, blackwell-geforce (decode)"},
       {kBlackwell,
        deepseek_v3(),
        {.decode_backend = "flashmla"},
        "blackwell: flashmla runs MLA on hopper (decode)"},
       {kBlackwellGeforce,
        deepseek_v3(),
        {.decode_backend = "cutlass_mla"},
        "blackwell-geforce: cutlass_mla runs MLA on blackwell (decode)"},
       {kTuring, deepseek_v3(), {.attention_backend = "flashinfer"}, "turing: flashinfer runs MLA on ampere"},
       {kHopper, llama(), {.attention_backend = "cpu"}, "hopper: cpu runs MHA on cpu (prefill)"},
       {kHopper, llama(), {.attention_backend = "aiter"}, "hopper: aiter runs MHA on amd (prefill)"}});
}

TEST(Rejection, NamesTheUnsupportedKindOfKv) {
  expect_errors(
      {{kBlackwell,
        llama(),
        {.attention_backend = "trtllm_mla"},
        "MHA: trtllm_mla supports MLA only (prefill)"},
       {kHopper, llama(), {.attention_backend = "flashmla"}, "MHA: flashmla supports MLA only (decode)"},
       {kBlackwell,
        deepseek_v3(),
        {.attention_backend = "trtllm_mha"},
        "MLA: trtllm_mha supports MHA only (decode)"}});
}

TEST(Rejection, NamesAnUnsupportedPhase) {
  expect_errors({{kHopper,
                  deepseek_v3(),
                  {.prefill_backend = "flashmla"},
                  "MLA: flashmla supports decode only (prefill)"},
                 {kBlackwell,
                  deepseek_v3(),
                  {.prefill_backend = "cutlass_mla"},
                  "MLA: cutlass_mla supports decode only (prefill)"},
                 // If cutlass_mla were chosen for prefill, its request for decode would be lost.
                 {kBlackwell,
                  deepseek_v3(),
                  {.attention_backend = "cutlass_mla", .decode_backend = "trtllm_mla"},
                  "MLA: cutlass_mla supports decode only (prefill)"}});
}

TEST(Rejection, NamesAnUnsupportedPageSize) {
  expect_errors({{kHopper,
                  deepseek_v3(),
                  {.attention_backend = "flashmla", .page_size = 16},
                  "page_size 16: flashmla needs 64 (decode)"},
                 {kBlackwell,
                  deepseek_v3(),
                  {.attention_backend = "cutlass_mla", .page_size = 64},
                  "page_size 64: cutlass_mla needs 128 (decode)"},
                 {kBlackwell,
                  deepseek_v3(),
                  {.attention_backend = "trtllm_mla", .page_size = 128},
                  "page_size 128: trtllm_mla needs 32, 64 (prefill)"},
                 {kBlackwell,
                  llama(),
                  {.attention_backend = "trtllm_mha", .page_size = 1},
                  "page_size 1: trtllm_mha needs 16, 32, 64, 128 (prefill)"},
                 {kBlackwell,
                  llama(),
                  {.prefill_backend = "trtllm_mha", .page_size = 8},
                  "page_size 8: trtllm_mha needs 16, 32, 64, 128 (prefill)"},
                 {kBlackwell,
                  llama(),
                  {.attention_backend = "fa4", .page_size = 64},
                  "page_size 64: fa4 needs 1, 128 (decode)"},
                 {kBlackwell,
                  llama2(),
                  {.attention_backend = "trtllm_mha", .page_size = 128},
                  "page_size 128 with one query head per KV head: trtllm_mha needs 16, 32, 64 (decode)"}});
}

TEST(Rejection, NamesPhasesWithoutACommonPageSize) {
  // SGLang's rules overwrite the page size one after another, and the last one applies even if it is wrong.
  expect_errors({{kBlackwell,
                  llama2(),
                  {.prefill_backend = "fa4", .decode_backend = "trtllm_mha"},
                  "no page size is supported in both phases: fa4 needs 1, 128 (prefill), trtllm_mha needs "
                  "16, 32, 64 (decode)"},
                 {kBlackwell,
                  deepseek_v3(),
                  {.prefill_backend = "trtllm_mla", .decode_backend = "cutlass_mla"},
                  "no page size is supported in both phases: trtllm_mla needs 32, 64 (prefill), cutlass_mla "
                  "needs 128 (decode)"},
                 {kBlackwell,
                  deepseek_v3(),
                  {.prefill_backend = "fa4", .decode_backend = "trtllm_mla"},
                  "no page size is supported in both phases: fa4 needs 1 (prefill), trtllm_mla needs 32, 64 "
                  "(decode)"}});
}

TEST(Rejection, NamesUnsupportedDraftTrees) {
  const auto tree = [](const Requirement& model) { return with_drafts(model, Speculation::kTree); };
  expect_errors({{kHopper,
                  tree(deepseek_v3()),
                  {.attention_backend = "flashmla"},
                  "draft tree: flashmla supports chain (decode)"},
                 {kBlackwell,
                  tree(deepseek_v3()),
                  {.attention_backend = "flashinfer"},
                  "draft tree: flashinfer supports chain (decode)"},
                 {kBlackwell,
                  tree(llama()),
                  {.attention_backend = "trtllm_mha"},
                  "draft tree: trtllm_mha supports chain (decode)"},
                 {kBlackwell,
                  tree(deepseek_v3()),
                  {.attention_backend = "trtllm_mla"},
                  "draft tree: trtllm_mla supports chain (decode)"},
                 // Separate backends per phase do not bypass the rule.
                 {kBlackwell,
                  tree(llama()),
                  {.prefill_backend = "flashinfer", .decode_backend = "trtllm_mha"},
                  "draft tree: trtllm_mha supports chain (decode)"},
                 {kBlackwell,
                  tree(llama()),
                  {.attention_backend = "fa4", .page_size = 128},
                  "page_size 128 with draft trees: fa4 needs 1 (decode)"},
                 {kHopper,
                  tree(llama()),
                  {.prefill_backend = "flashinfer", .decode_backend = "fa4", .page_size = 128},
                  "page_size 128 with draft trees: fa4 needs 1 (decode)"},
                 {kAmd,
                  tree(llama()),
                  {.attention_backend = "aiter", .page_size = 16},
                  "page_size 16 with draft trees: aiter needs 1 (decode)"},
                 {kHopper,
                  tree(gpt_oss()),
                  {.attention_backend = "fa3", .page_size = 16},
                  "page_size 16 with draft trees and a sliding window: fa3 needs 1 (decode)"}});
}

TEST(Rejection, NamesABackendWithoutSpeculation) {
  expect_errors({{kBlackwell,
                  with_drafts(deepseek_v3(), Speculation::kChain),
                  {.attention_backend = "cutlass_mla"},
                  "draft chain: cutlass_mla supports none (decode)"}});
}

TEST(Rejection, NamesAnUnsupportedFeature) {
  Requirement window_and_cross = whisper();
  window_and_cross.window = true;
  expect_errors(
      {{kAmpere,
        gpt_oss(),
        {.attention_backend = "flashinfer"},
        "attention sinks: flashinfer does not support this (prefill)"},
       {kAmpere,
        llama4(),
        {.decode_backend = "flashinfer"},
        "chunked local attention: flashinfer does not support this (decode)"},
       {kAmd,
        gpt_oss(),
        {.attention_backend = "aiter"},
        "attention sinks: aiter does not support this (decode)"},
       {kHopper,
        whisper(),
        {.attention_backend = "triton"},
        "cross attention: triton does not support this (prefill)"},
       {kBlackwell,
        whisper(),
        {.attention_backend = "trtllm_mha"},
        "cross attention: trtllm_mha does not support this (decode)"},
       {kHopper,
        window_and_cross,
        {.attention_backend = "fa3"},
        "cross attention and a sliding window: fa3 supports only one of them (prefill)"},
       {kBlackwell,
        unequal_head_dims(),
        {.attention_backend = "trtllm_mha"},
        "head dims 192/128: trtllm_mha supports equal multiples of 8 up to 256, or 512/512 (prefill)"}});
}

TEST(Rejection, NamesAnUnsupportedKvCacheDtype) {
  expect_errors({{kHopper,
                  with_kv(llama(), DType::kF8E5M2),
                  {.attention_backend = "fa3"},
                  "kv_cache_dtype fp8_e5m2: fa3 supports float32, float16, bfloat16, fp8_e4m3 (decode)"},
                 // FA3 for prefill only does not bypass the rule.
                 {kHopper,
                  with_kv(llama(), DType::kF8E5M2),
                  {.prefill_backend = "fa3", .decode_backend = "triton"},
                  "kv_cache_dtype fp8_e5m2: fa3 supports float32, float16, bfloat16, fp8_e4m3 (prefill)"},
                 {kBlackwell,
                  with_kv(deepseek_v3(), DType::kF8E5M2),
                  {.attention_backend = "trtllm_mla"},
                  "kv_cache_dtype fp8_e5m2: trtllm_mla supports"},
                 {kBlackwell,
                  with_kv(llama(), DType::kF8E4M3),
                  {.attention_backend = "fa4"},
                  "kv_cache_dtype fp8_e4m3: fa4 supports float32, float16, bfloat16 (prefill)"}});
}

TEST(Rejection, NamesUnsupportedScaledRows) {
  Requirement narrow = with_kv(deepseek_v3(), DType::kU8);
  narrow.head_dims = {320, 256};
  expect_errors(
      {{kHopper,
        with_kv(deepseek_v3(), DType::kU8),
        {.attention_backend = "fa3"},
        "kv_cache_dtype fp8_ds_mla: fa3 supports float32, float16, bfloat16, fp8_e4m3 (decode)"},
       {kHopper,
        with_kv(llama(), DType::kU8),
        {.attention_backend = "triton"},
        "kv_cache_dtype fp8_ds_mla: triton supports float32, float16, bfloat16, fp8_e4m3, fp8_e5m2 (decode)"},
       {kHopper,
        narrow,
        {.attention_backend = "triton"},
        "kv_cache_dtype fp8_ds_mla with head dims 320/256: triton supports it for 576/512 (decode)"}});
}

TEST(Rejection, NamesBackendsThatAreNotDeterministic) {
  for (std::string_view name : {"trtllm_mha", "aiter"})
    expect_errors(
        {{name == "aiter" ? kAmd : kBlackwell,
          deterministic(llama()),
          {.attention_backend = std::string(name)},
          std::string("deterministic inference: ") + std::string(name) + " does not support this (decode)"}});
  expect_errors({{kBlackwell,
                  deterministic(deepseek_v3()),
                  {.attention_backend = "flashinfer"},
                  "deterministic inference: flashinfer does not support this (decode)"},
                 {kHopper,
                  deterministic(deepseek_v3()),
                  {.attention_backend = "flashmla"},
                  "deterministic inference: flashmla does not support this (decode)"},
                 {kHopper,
                  deterministic(deepseek_v3()),
                  {.attention_backend = "fa4"},
                  "deterministic inference on hopper: fa4 supports it for MLA on blackwell (decode)"}});
}

TEST(Rejection, NamesBackendsWithoutCudaGraphs) {
  Requirement graphs = llama();
  graphs.graphs = true;
  expect_errors({{kCpu,
                  graphs,
                  {.attention_backend = "torch_native"},
                  "CUDA graphs: torch_native does not support this (decode)"}});
}

TEST(Rejection, ListsEveryNameForAnUnknownName) {
  try {
    resolve(llama(), machine(kHopper), {.attention_backend = "flash_attn"}, backend_table());
    ADD_FAILURE() << "resolved";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    for (const BackendEntry& entry : backend_table())
      EXPECT_THAT(error.what(), HasSubstr(std::string(entry.name)));
  }
}

// All names of SGLang's registry (attention_registry.py).
TEST(RejectionText, ExplainsSglangsOtherBackends) {
  for (const std::string_view name : {"triton",
                                      "torch_native",
                                      "flex_attention",
                                      "dsa",
                                      "nsa",
                                      "dsv4",
                                      "compressed",
                                      "cutlass_mla",
                                      "fa3",
                                      "fa4",
                                      "flashinfer",
                                      "flashmla",
                                      "trtllm_mla",
                                      "cutedsl_mla",
                                      "qsa",
                                      "minicpm_flashattn",
                                      "minicpm_flashinfer",
                                      "llada2_cfg_flashinfer",
                                      "tokenspeed_mla",
                                      "trtllm_mha",
                                      "dual_chunk_flash_attn",
                                      "hpc_ops",
                                      "aiter",
                                      "wave",
                                      "intel_amx",
                                      "ascend",
                                      "intel_xpu"}) {
    const bool is_there = find_backend(backend_table(), name) != nullptr;
    ASSERT_NE(is_there, find_unsupported_backend(name) != nullptr) << name;
    if (is_there) continue;
    EXPECT_THAT(testing_support::error_message(ErrorCode::kUnsupported,
                                               [&] {
                                                 resolve(llama(), machine(kHopper),
                                                         {.attention_backend = std::string(name)},
                                                         backend_table());
                                               }),
                HasSubstr("attention backend '" + std::string(name) + "' of SGLang: "));
  }
}

}  // namespace
}  // namespace attend::test
