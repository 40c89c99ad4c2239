#include "attend/attention/resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/base/error.h"
#include "tests/attention/small_table.h"

namespace attend::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Failure {
  ErrorCode code;
  std::string message;
};

// Returns how a resolution fails. The test fails if it succeeds.
Failure failure(const Requirement& needs, const Hardware& hardware, const BackendOptions& options,
                const std::vector<BackendEntry>& table = small_table()) {
  try {
    resolve(needs, hardware, options, table);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  ADD_FAILURE() << "resolved";
  return {};
}

TEST(Resolver, ChoosesTheFirstPreferredBackendThatCanServe) {
  const auto table = small_table();
  const Resolution plain = resolve(kMhaModel, kHopperMachine, {}, table);
  EXPECT_EQ(plain.prefill->name, "fa3");
  EXPECT_EQ(plain.decode, plain.prefill);
  EXPECT_EQ(plain.page_size, 128);
  EXPECT_EQ(plain.why, "fa3: first choice for hopper");

  Requirement sinks = kMhaModel;
  sinks.sinks = true;
  const Resolution other = resolve(sinks, kHopperMachine, {}, table);
  EXPECT_EQ(other.prefill->name, "triton");
  EXPECT_EQ(other.page_size, kDefaultPageSize);
  EXPECT_EQ(other.why, "triton: first choice for hopper that supports this model");
}

TEST(Resolver, FallsBackToAnUnlistedBackend) {
  auto table = small_table();
  std::erase_if(table, [](const BackendEntry& entry) { return entry.name != "fa3"; });
  table[0].name = "newcomer";
  const Resolution resolution = resolve(kMhaModel, kHopperMachine, {}, table);
  EXPECT_EQ(resolution.prefill->name, "newcomer");
  EXPECT_EQ(resolution.why, "newcomer: no preferred backend for hopper supports this model");
}

TEST(Resolver, ReturnsTheRequestedBackendByNameOrAlias) {
  const auto table = small_table();
  for (std::string_view name : {"triton", "portable"}) {
    const Resolution resolution =
        resolve(kMhaModel, kHopperMachine, {.attention_backend = std::string(name)}, table);
    EXPECT_EQ(resolution.prefill->name, "triton");
    EXPECT_EQ(resolution.decode->name, "triton");
    EXPECT_EQ(resolution.why, "triton: requested");
  }
}

TEST(Resolver, PhaseOptionOverridesTheBackendOfBothPhases) {
  const auto table = small_table();
  const Resolution resolution =
      resolve(kMhaModel, kHopperMachine,
              {.attention_backend = "triton", .decode_backend = "fa3", .page_size = 1}, table);
  EXPECT_EQ(resolution.prefill->name, "triton");
  EXPECT_EQ(resolution.decode->name, "fa3");
  EXPECT_EQ(resolution.page_size, 1);
  EXPECT_EQ(resolution.why, "triton: requested (prefill); fa3: requested (decode)");
}

TEST(Resolver, ListsKnownNamesForAnUnknownName) {
  const Failure unknown = failure(kMhaModel, kHopperMachine, {.decode_backend = "fa5"});
  EXPECT_EQ(unknown.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(unknown.message, "attention backend 'fa5': expected one of cpu, triton, fa3, flashmla");
}

TEST(Resolver, IntersectsThePageSizesOfBothPhases) {
  const auto table = small_table();
  const Resolution resolution = resolve(kMlaModel, kHopperMachine, {.decode_backend = "flashmla"}, table);
  EXPECT_EQ(resolution.prefill->name, "triton");
  EXPECT_EQ(resolution.decode->name, "flashmla");
  EXPECT_EQ(resolution.page_size, 64);
}

TEST(Resolver, SkipsAPreferredBackendWithoutACommonPageSize) {
  auto table = small_table();
  table[1].mha.page_sizes = {16, 64};
  const Resolution resolution = resolve(kMhaModel, kHopperMachine, {.decode_backend = "triton"}, table);
  EXPECT_EQ(resolution.prefill->name, "triton");  // fa3 is preferred, but supports page sizes 1 and 128
  EXPECT_EQ(resolution.page_size, 16);
}

TEST(Resolver, RejectsAPairWithoutACommonPageSize) {
  auto table = small_table();
  table[1].mha.page_sizes = {16, 64};
  const Failure pair =
      failure(kMhaModel, kHopperMachine, {.prefill_backend = "fa3", .decode_backend = "triton"}, table);
  EXPECT_EQ(pair.code, ErrorCode::kUnsupported);
  EXPECT_EQ(
      pair.message,
      "no page size is supported in both phases: fa3 needs 1, 128 (prefill), triton needs 16, 64 (decode)");
}

TEST(Resolver, NeverChangesTheRequestedPageSize) {
  const auto table = small_table();
  for (int page_size : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
    const Resolution resolution = resolve(kMhaModel, kHopperMachine, {.page_size = page_size}, table);
    EXPECT_EQ(resolution.page_size, page_size);
    EXPECT_EQ(resolution.prefill->name, page_size == 1 || page_size == 128 ? "fa3" : "triton");
  }
  EXPECT_EQ(failure(kMlaModel, kHopperMachine, {.decode_backend = "flashmla", .page_size = 16}).message,
            "page_size 16: flashmla needs 64 (decode)");
  EXPECT_EQ(failure(kMhaModel, kHopperMachine, {.page_size = 24}).code, ErrorCode::kInvalidArgument);
}

TEST(Resolver, PrefersTheBackendsPageSize) {
  auto table = small_table();
  table[1].mha.preferred_page_size = 32;
  EXPECT_EQ(resolve(kMhaModel, kHopperMachine, {.attention_backend = "triton"}, table).page_size, 32);
  EXPECT_EQ(
      resolve(kMhaModel, kHopperMachine, {.attention_backend = "triton", .page_size = 8}, table).page_size,
      8);
}

TEST(Resolver, ChoosesPrefillForADecodeOnlyBackend) {
  const auto table = small_table();
  const Resolution resolution = resolve(kMlaModel, kHopperMachine, {.attention_backend = "flashmla"}, table);
  EXPECT_EQ(resolution.prefill->name, "triton");
  EXPECT_EQ(resolution.decode->name, "flashmla");
  EXPECT_EQ(resolution.page_size, 64);
  EXPECT_EQ(resolution.why,
            "triton: first choice for hopper that supports this model; flashmla has no prefill (prefill); "
            "flashmla: "
            "requested (decode)");
}

TEST(Resolver, RejectsAnUnusedDecodeOnlyBackend) {
  EXPECT_EQ(failure(kMlaModel, kHopperMachine, {.attention_backend = "flashmla", .decode_backend = "triton"})
                .message,
            "MLA: flashmla supports decode only (prefill)");
  EXPECT_EQ(failure(kMlaModel, kHopperMachine, {.prefill_backend = "flashmla"}).message,
            "MLA: flashmla supports decode only (prefill)");
}

TEST(Resolver, CollectsTheReasonsOfBothPhases) {
  EXPECT_EQ(failure(kMhaModel, kHopperMachine, {.attention_backend = "fa3", .page_size = 64}).message,
            "page_size 64: fa3 needs 1, 128 (prefill); page_size 64: fa3 needs 1, 128 (decode)");
}

TEST(Resolver, RunsAnyContractOnACpuOnRequest) {
  const auto table = small_table();
  const Resolution automatic = resolve(kMhaModel, kCpuMachine, {}, table);
  EXPECT_EQ(automatic.prefill->name, "cpu");
  EXPECT_EQ(automatic.why, "cpu: first choice for cpu");

  const Resolution asked = resolve(kMhaModel, kCpuMachine, {.attention_backend = "fa3"}, table);
  EXPECT_EQ(asked.prefill->name, "fa3");
  EXPECT_EQ(asked.page_size, 128);
  EXPECT_EQ(asked.why, "fa3: requested; its contract runs over the CPU kernels");
}

TEST(Resolver, KeepsAContractsLimitsOnACpu) {
  EXPECT_EQ(failure(kMhaModel, kCpuMachine, {.attention_backend = "flashmla"}).message,
            "MHA: flashmla supports MLA only (prefill); MHA: flashmla supports MLA only (decode)");
  EXPECT_EQ(failure(kMhaModel, kCpuMachine, {.decode_backend = "fa3", .page_size = 16}).message,
            "page_size 16: fa3 needs 1, 128 (decode)");
}

TEST(Resolver, NeverRunsACpuBackendOnAGpu) {
  EXPECT_EQ(failure(kMhaModel, kHopperMachine, {.decode_backend = "cpu"}).message,
            "hopper: cpu runs MHA on cpu (decode)");
}

TEST(Resolver, ReportsWhyOtherBackendsCannotServe) {
  const auto table = small_table();
  const Resolution resolution = resolve(kMhaModel, kHopperMachine, {.page_size = 16}, table);
  ASSERT_EQ(resolution.rejected.size(), 6u);  // cpu, fa3 and flashmla for each phase
  EXPECT_EQ(resolution.rejected[1].backend, "fa3");
  EXPECT_EQ(resolution.rejected[1].phase, Phase::kPrefill);
  EXPECT_THAT(resolution.rejected[1].reasons, ElementsAre("page_size 16: fa3 needs 1, 128 (prefill)"));
}

TEST(Resolver, OmitsReasonsAgainstRequestedBackends) {
  const auto table = small_table();
  const Resolution resolution = resolve(kMhaModel, kCpuMachine, {.attention_backend = "fa3"}, table);
  for (const Rejection& error_text : resolution.rejected) EXPECT_NE(error_text.backend, "fa3");
}

TEST(Resolver, ListsEveryReasonIfNoBackendCanServe) {
  Requirement needs = kMhaModel;
  needs.head_dims = {264, 264};
  needs.sinks = true;
  const Failure nobody = failure(needs, kHopperMachine, {});
  EXPECT_EQ(nobody.code, ErrorCode::kUnsupported);
  EXPECT_THAT(nobody.message, HasSubstr("no attention backend supports this model on hopper:"));
  for (std::string_view phase : {"(prefill)", "(decode)"})
    for (const char* reason :
         {"hopper: cpu runs MHA on cpu ", "head dims 264/264: cpu supports multiples of 8 up to 256/256 ",
          "head dims 264/264: triton supports multiples of 8 up to 256/256 ",
          "head dims 264/264: fa3 supports multiples of 8 up to 256/256 ",
          "attention sinks: fa3 does not support this ", "MHA: flashmla supports MLA only "})
      EXPECT_THAT(nobody.message, HasSubstr(reason + std::string(phase)));
}

TEST(Resolver, NamesTheCauseBeforeOtherHardware) {
  Requirement needs = kMhaModel;
  needs.head_dims = {20, 20};
  const Failure nobody = failure(needs, kHopperMachine, {});
  EXPECT_THAT(
      nobody.message,
      StartsWith(
          "head dims 20/20: no attention backend supports this model on hopper:\n  head dims 20/20: "));
  const size_t last_here = nobody.message.find("head dims 20/20: fa3 supports");
  EXPECT_LT(last_here, nobody.message.find("cpu runs MHA on cpu"));
  EXPECT_LT(last_here, nobody.message.find("flashmla supports MLA only"));
}

TEST(Resolver, RequiresGraphSupportForDecodeOnly) {
  Requirement needs = kMhaModel;
  needs.graphs = true;
  const auto table = small_table();
  EXPECT_THAT(rejection_reasons(table[0], Phase::kDecode, needs, kCpuMachine, {}, true),
              ElementsAre("CUDA graphs: cpu does not support this (decode)"));
  EXPECT_THAT(rejection_reasons(table[0], Phase::kPrefill, needs, kCpuMachine, {}, true), ElementsAre());
}

// One line per field of Capability: a backend that lacks it, a model that requires it, and the reason.
TEST(RejectionReasons, NamesEveryExceededLimit) {
  const Capability everything{.prefill = {Architecture::kHopper},
                              .decode = {Architecture::kHopper},
                              .page_sizes = PageSizes::all(),
                              .dtypes = kHalf,
                              .kv_dtypes = kHalf};
  struct Case {
    void (*limit)(Capability&);
    void (*want)(Requirement&);
    const char* reason;
  };
  const Case cases[] = {
      {[](Capability& can) { can.decode = {Architecture::kAmpere}; }, [](Requirement&) {},
       "hopper: x runs MHA on ampere (decode)"},
      {[](Capability& can) { can.decode = {}; }, [](Requirement&) {},
       "MHA: x supports prefill only (decode)"},
      {[](Capability& can) {
         can.head_dims = {96, 96};
       },
       [](Requirement&) {}, "head dims 128/128: x supports multiples of 8 up to 96/96 (decode)"},
      {[](Capability&) {},
       [](Requirement& needs) {
         needs.head_dims = {100, 100};
       },
       "head dims 100/100: x supports multiples of 8 up to 256/256 (decode)"},
      {[](Capability& can) { can.head_dim_rule = HeadDimRule::kEqualUpTo; },
       [](Requirement& needs) {
         needs.head_dims = {192, 128};
       },
       "head dims 192/128: x supports equal multiples of 8 up to 256 (decode)"},
      {[](Capability& can) { can.head_dim_rule = HeadDimRule::kExactly; }, [](Requirement&) {},
       "head dims 128/128: x supports 256/256 (decode)"},
      {[](Capability& can) {
         can.num_q_heads = {16, 128};
       },
       [](Requirement&) {}, "32 query heads: x supports 16 and 128 (decode)"},
      {[](Capability& can) { can.dtypes = {DType::kF16}; }, [](Requirement&) {},
       "dtype bfloat16: x supports float16 (decode)"},
      {[](Capability&) {}, [](Requirement& needs) { needs.kv_dtype = DType::kF8E5M2; },
       "kv_cache_dtype fp8_e5m2: x supports float16, bfloat16 (decode)"},
      {[](Capability& can) { can.kv_scales = false; }, [](Requirement& needs) { needs.kv_scales = true; },
       "KV scales: x does not support this (decode)"},
      {[](Capability& can) { can.window = false; }, [](Requirement& needs) { needs.window = true; },
       "sliding window: x does not support this (decode)"},
      {[](Capability& can) { can.chunk = false; }, [](Requirement& needs) { needs.chunk = true; },
       "chunked local attention: x does not support this (decode)"},
      {[](Capability& can) { can.logit_cap = false; }, [](Requirement& needs) { needs.logit_cap = true; },
       "logit cap: x does not support this (decode)"},
      {[](Capability& can) { can.sinks = false; }, [](Requirement& needs) { needs.sinks = true; },
       "attention sinks: x does not support this (decode)"},
      {[](Capability& can) { can.cross = false; }, [](Requirement& needs) { needs.cross = true; },
       "cross attention: x does not support this (decode)"},
      {[](Capability& can) { can.cross_with_window = false; },
       [](Requirement& needs) { needs.cross = needs.window = true; },
       "cross attention and a sliding window: x supports only one of them (decode)"},
      {[](Capability& can) { can.bidirectional = false; },
       [](Requirement& needs) { needs.bidirectional = true; },
       "bidirectional attention: x does not support this (decode)"},
      {[](Capability&) {}, [](Requirement& needs) { needs.indexer = true; },
       "keys selected by an indexer: x attends to all keys (decode)"},
      {[](Capability& can) { can.indexer = true; }, [](Requirement&) {},
       "attention to all keys: x serves only models with an indexer (decode)"},
      {[](Capability& can) { can.speculation = Speculation::kChain; },
       [](Requirement& needs) { needs.speculation = Speculation::kTree; },
       "draft tree: x supports chain (decode)"},
      {[](Capability& can) { can.speculation = Speculation::kNone; },
       [](Requirement& needs) { needs.speculation = Speculation::kChain; },
       "draft chain: x supports none (decode)"},
      {[](Capability& can) { can.deterministic = {}; },
       [](Requirement& needs) { needs.deterministic = true; },
       "deterministic inference: x does not support this (decode)"},
      {[](Capability& can) { can.deterministic = {Architecture::kBlackwell}; },
       [](Requirement& needs) { needs.deterministic = true; },
       "deterministic inference on hopper: x supports it for MHA on blackwell (decode)"},
      {[](Capability& can) { can.graphs = false; }, [](Requirement& needs) { needs.graphs = true; },
       "CUDA graphs: x does not support this (decode)"},
      {[](Capability& can) { can.page_sizes = {64}; }, [](Requirement&) {},
       "page_size 16: x needs 64 (decode)"},
      {[](Capability& can) { can.tree_page_sizes = {1}; },
       [](Requirement& needs) { needs.speculation = Speculation::kTree; },
       "page_size 16 with draft trees: x needs 1 (decode)"},
      {[](Capability& can) { can.window_tree_page_sizes = {1}; },
       [](Requirement& needs) { needs.speculation = Speculation::kTree, needs.window = true; },
       "page_size 16 with draft trees and a sliding window: x needs 1 (decode)"},
      {[](Capability& can) { can.no_gqa_page_sizes = {64}; },
       [](Requirement& needs) { needs.q_heads_per_kv = 1; },
       "page_size 16 with one query head per KV head: x needs 64 (decode)"}};
  for (const Case& one : cases) {
    BackendEntry entry{.name = "x", .mha = everything};
    Requirement needs = kMhaModel;
    one.want(needs);
    one.limit(entry.mha);
    EXPECT_THAT(rejection_reasons(entry, Phase::kDecode, needs, kHopperMachine, 16, false),
                ElementsAre(one.reason));
    if (const BackendEntry able{.name = "x", .mha = everything};
        needs.kv_dtype == DType::kBF16 && needs.head_dims.qk % 8 == 0 && !needs.indexer) {
      EXPECT_THAT(rejection_reasons(able, Phase::kDecode, needs, kHopperMachine, 16, false), ElementsAre())
          << one.reason;
    }
  }
}

TEST(DetectCpu, ReportsWorkers) {
  const Hardware machine = detect_cpu();
  EXPECT_EQ(machine.architecture, Architecture::kCpu);
  EXPECT_GE(machine.num_workers, 1);
  EXPECT_FALSE(machine.name.empty());
}

}  // namespace
}  // namespace attend::test
