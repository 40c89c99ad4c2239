// Engines on different GPUs in one process.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

class TwoGpus : public testing::Test {
 protected:
  static constexpr size_t kTokens = 3 * 32;

  void SetUp() override {
    if (cuda::device_count() < 2)
      GTEST_SKIP() << "this machine has fewer than two GPUs that this build can use";
    for (int i = 0; i < 2; ++i) {
      EngineConfig config;
      config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
      config.device = {DeviceType::kCuda, i};
      config.max_total_tokens = 4096;
      config.max_running_requests = 4;
      engines_[i] = std::make_unique<Engine>(config);
      for (const int length : {700, 3, 90})
        engines_[i]->submit(std::vector<int32_t>(static_cast<size_t>(length), 50 + length % 40),
                            {.max_new_tokens = 32, .ignore_eos = true});
    }
  }

  // Steps one engine. Returns false when no request is left.
  bool step(int i) {
    return engines_[i]->step([&](const RequestOutput& output) { tokens_[i].push_back(output.token_ids[0]); });
  }

  std::unique_ptr<Engine> engines_[2];
  std::vector<int32_t> tokens_[2];
};

// Function attributes, the algorithms of GEMMs and graphs belong to one device, so each device must set up
// its own.
TEST_F(TwoGpus, GenerateTheSameTokensInAlternatingSteps) {
  for (bool running = true; running;) {
    running = step(0);
    running |= step(1);
  }
  EXPECT_EQ(tokens_[0].size(), kTokens);
  EXPECT_EQ(tokens_[0], tokens_[1]);
}

TEST_F(TwoGpus, GenerateTheSameTokensOnSeparateThreads) {
  const auto run = [this](int i) {
    while (step(i)) {
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_EQ(tokens_[0].size(), kTokens);
  EXPECT_EQ(tokens_[0], tokens_[1]);
}

}  // namespace
}  // namespace attend
