// Every pair of a prefill backend and a decode backend, end to end on the bundled model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/backends/table.h"
#include "attend/engine/engine.h"

namespace attend {
namespace {

using testing::HasSubstr;

const std::filesystem::path kTinyModel = ATTEND_SOURCE_DIR "/models/attend-tiny";

EngineConfig make_config(std::string_view prefill, std::string_view decode) {
  EngineConfig config;
  config.model_path = kTinyModel;
  config.kv_cache_dtype = DType::kF32;
  config.max_total_tokens = 1024;
  config.context_length = 256;
  // Prompts are prefilled in chunks while other requests decode, so steps are prefill, decode and mixed.
  config.chunked_prefill_size = 40;
  config.backend_options.prefill_backend = prefill;
  config.backend_options.decode_backend = decode;
  return config;
}

std::vector<std::string> answers(const EngineConfig& config) {
  Engine engine(config);
  std::vector<std::string> texts;
  for (const std::string_view prompt :
       {"recall: sun=42, river=17, fox=80; river=", "recall: sun=42, river=17, fox=80; sun="}) {
    texts.emplace_back();
    engine.submit(prompt, {.max_new_tokens = 24});
    engine.step(
        [&](const RequestOutput& output) { texts[static_cast<size_t>(output.id) - 1] += output.text; });
  }
  while (engine.step(
      [&](const RequestOutput& output) { texts[static_cast<size_t>(output.id) - 1] += output.text; })) {
  }
  return texts;
}

struct Pair {
  const BackendEntry* prefill;
  const BackendEntry* decode;
};

std::vector<Pair> all_pairs() {
  std::vector<Pair> pairs;
  for (const BackendEntry& prefill : backend_table())
    for (const BackendEntry& decode : backend_table()) pairs.push_back({&prefill, &decode});
  return pairs;
}

std::string name_of(const testing::TestParamInfo<Pair>& info) {
  return std::string(info.param.prefill->name) + "_then_" + std::string(info.param.decode->name);
}

class BackendPairs : public testing::TestWithParam<Pair> {};

// If a backend of the pair lacks the page size or does not support the kind of K/V, the error names the
// backend and the unsupported property.
TEST_P(BackendPairs, AnswerCorrectlyOrAreRejectedWithAReason) {
  const auto [prefill, decode] = GetParam();
  const Capability &one = prefill->mha, &two = decode->mha;
  const bool serves =
      !one.prefill.empty() && !two.decode.empty() && !one.page_sizes.intersect(two.page_sizes).empty();
  const EngineConfig config = make_config(prefill->name, decode->name);
  try {
    EXPECT_THAT(answers(config), testing::ElementsAre("17", "42"));
    EXPECT_TRUE(serves) << "the engine answered although the backends' records declare no support";
  } catch (const Error& error) {
    EXPECT_FALSE(serves) << error.what();
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    if (one.prefill.empty()) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(prefill->name) + " "));
      EXPECT_THAT(error.what(), HasSubstr("(prefill)"));
    }
    if (two.decode.empty()) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(decode->name) + " "));
    }
    if (!one.prefill.empty() && !two.decode.empty()) {
      EXPECT_THAT(error.what(), HasSubstr("no page size is supported in both phases: "));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Mha, BackendPairs, testing::ValuesIn(all_pairs()), name_of);

}  // namespace
}  // namespace attend
