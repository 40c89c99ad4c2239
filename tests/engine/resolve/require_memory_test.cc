#include "attend/engine/resolve/require_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/engine/engine.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing_support::error_message;

TEST(RequireMemory, AcceptsAnExactFit) {
  EXPECT_NO_THROW(require_memory({{"a", 60, "--a"}, {"b", 40, "--b"}}, 100));
}

TEST(RequireMemory, NamesThePartThatDoesNotFit) {
  EXPECT_EQ(error_message(ErrorCode::kOutOfMemory,
                          [] {
                            require_memory({{"a", 60, "--a"}, {"b", 41, "--b"}}, 100);
                          }),
            "b: needed 41 bytes, free 40; lower --b");
}

TEST(RequireMemory, ReportsLargeSizesInGigabytes) {
  EXPECT_EQ(error_message(ErrorCode::kOutOfMemory,
                          [] {
                            require_memory({{"a", 15'009'849'344, "--a"}}, 8'491'175'936);
                          }),
            "a: needed 15009849344 bytes (15.0 GB), free 8491175936 (8.5 GB); lower --a");
}

EngineConfig tiny() {
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  return config;
}

// Error message of an engine without enough memory. The check must run before weights are read.
std::string start(const EngineConfig& config) {
  return error_message(ErrorCode::kOutOfMemory, [&] {
    Engine(config,
           {.weights = [](size_t, size_t) { FAIL() << "weights were read before the error"; }, .graphs = {}});
  });
}

TEST(EngineMemory, NamesTheFlagOfAPoolThatDoesNotFit) {
  EngineConfig config = tiny();
  config.max_total_tokens = 2'000'000'000;
  EXPECT_THAT(start(config), AllOf(HasSubstr("KV pool of 2000000000 tokens: needed "),
                                   HasSubstr(" GB), free "), HasSubstr("; lower --max-total-tokens")));
}

TEST(EngineMemory, NamesTheFlagOfATableOfRequestsThatDoesNotFit) {
  EngineConfig config = tiny();
  config.max_total_tokens = 1024;
  config.max_running_requests = 1'000'000'000;
  EXPECT_THAT(start(config),
              AllOf(HasSubstr("table of 1000000000 requests"), HasSubstr("; lower --max-running-requests")));
}

TEST(EngineMemory, NamesTheFlagOfActivationsThatDoNotFit) {
  EngineConfig config = tiny();
  config.max_total_tokens = 1024;
  config.chunked_prefill_size = 2'147'483'647;
  EXPECT_THAT(start(config),
              AllOf(ContainsRegex("activations of 2147483647 tokens a step: needed [0-9]{14} bytes"),
                    HasSubstr("; lower --chunked-prefill-size")));
}

}  // namespace
}  // namespace attend
