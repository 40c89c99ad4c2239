// Options and models that an engine on a GPU rejects before it reads weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/engine/engine.h"
#include "attend/engine/resolve/resolve_engine.h"
#include "attend/tensor/cuda.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

// The message omits GB for a small number of bytes.
constexpr const char* kNeededAndFree =
    "^device cuda:0: needed [0-9]+ bytes [(][0-9.]+ GB[)], [0-9]+( [(][0-9.]+ GB[)])? of them weights, "
    "free [0-9]+ [(][0-9.]+ GB[)]$";

class GpuErrors : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
    config_.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
    config_.device = {DeviceType::kCuda, 0};
    model_ = read_config(config_.model_path);
  }

  std::string error_text(ErrorCode code) const {
    return testing_support::error_message(code, [&] {
      Engine(config_, {.weights = [](size_t, size_t) { FAIL() << "weights were read before the error"; },
                       .graphs = {}});
    });
  }

  ResolvedEngine resolve() const {
    return resolve_engine(config_, model_, open_checkpoint(config_.model_path));
  }

  EngineConfig config_;
  ModelSpec model_;
};

TEST_F(GpuErrors, NameTheBytesOfWeightsThatDoNotFit) {
  for (LayerSpec& layer : model_.layers) std::get<GatedMlpSpec>(layer.mlp).intermediate_size = 1 << 30;
  EXPECT_THAT(testing_support::error_message(ErrorCode::kOutOfMemory, [&] { resolve(); }),
              ContainsRegex(kNeededAndFree));
}

TEST_F(GpuErrors, NameAVocabularyThatIsTooLargeToSampleFrom) {
  model_.vocab_size = 1 << 20;
  EXPECT_THAT(testing_support::error_message(ErrorCode::kUnsupported, [&] { resolve(); }),
              HasSubstr("vocab_size 1048576: device cuda:0 chooses among at most 1048575 tokens"));
}

TEST_F(GpuErrors, NameTheBytesOfAKvPoolThatDoesNotFit) {
  config_.max_total_tokens = 2'000'000'000;
  EXPECT_THAT(error_text(ErrorCode::kOutOfMemory), ContainsRegex(kNeededAndFree));
}

TEST_F(GpuErrors, NameTheBytesOfRecurrentStatesThatDoNotFit) {
  config_.model_path = ATTEND_SOURCE_DIR "/tests/goldens/qwen3-5-text-tied";
  config_.max_mamba_cache_size = 1'000'000'000;
  EXPECT_THAT(error_text(ErrorCode::kOutOfMemory),
              ContainsRegex("^device cuda:0: needed [0-9]+ bytes [(].*[)], [0-9]+ of them weights and [0-9]+ "
                            "[(].*[)] recurrent states, free [0-9]+ [(].*[)]$"));
}

TEST_F(GpuErrors, NameTheBytesOfARequestsKvWhenMemFractionIsTooSmall) {
  config_.mem_fraction_static = 1e-9;
  EXPECT_THAT(error_text(ErrorCode::kOutOfMemory), ContainsRegex("needed [0-9]+ bytes.*free [0-9]+"));
}

TEST_F(GpuErrors, NameTheFlagThatShrinksActivationsThatDoNotFit) {
  config_.max_total_tokens = 1024;
  config_.chunked_prefill_size = 2'147'483'647;
  EXPECT_THAT(error_text(ErrorCode::kOutOfMemory),
              AllOf(HasSubstr("activations of 2147483647 tokens a step: needed "),
                    HasSubstr("; lower --chunked-prefill-size")));
}

TEST_F(GpuErrors, NameAnInvalidMemFraction) {
  for (const double share : {-0.5, 0.0, 1.0, 1.5}) {
    config_.mem_fraction_static = share;
    EXPECT_THAT(error_text(ErrorCode::kInvalidArgument), HasSubstr(": above 0 and below 1")) << share;
  }
}

TEST_F(GpuErrors, NameAGraphSizeAboveTheLargestStep) {
  config_.max_running_requests = 8;
  config_.cuda_graph_bs = {1, 9};
  EXPECT_EQ(error_text(ErrorCode::kInvalidArgument), "cuda_graph_bs 9: 1 to 8, the requests of a step");
  config_.cuda_graph_bs = {0, 2};
  EXPECT_EQ(error_text(ErrorCode::kInvalidArgument), "cuda_graph_bs 0: 1 to 8, the requests of a step");
}

TEST_F(GpuErrors, NameAGraphSizeBeyondThePool) {
  config_.backend_options.page_size = 16;
  config_.max_total_tokens = 64;
  config_.cuda_graph_bs = {4, 5};
  EXPECT_EQ(error_text(ErrorCode::kInvalidArgument),
            "cuda_graph_bs 5: 1 to 4, the number of KV pool pages (a request needs at least one)");
}

TEST_F(GpuErrors, DoNotOccurForDefaultGraphSizesWithASmallPool) {
  config_.backend_options.page_size = 16;
  config_.max_total_tokens = 64;
  EXPECT_EQ(resolve().executors[0].decode_sizes.back(), 4);
}

TEST_F(GpuErrors, NameAMissingGpu) {
  config_.device.index = 99;
  EXPECT_THAT(error_text(ErrorCode::kInvalidArgument), HasSubstr("device cuda:99: this machine has "));
}

}  // namespace
}  // namespace attend
