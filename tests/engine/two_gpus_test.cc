// Engines on different GPUs of one process.
#include <gtest/gtest.h>

#include <memory>

#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

// Function attributes, products' algorithms and graphs are a device's own: what the first GPU was told must
// be told to the second too.
TEST(TwoGpus, GenerateTheSameTokensInTurns) {
  if (cuda::device_count() < 2)
    GTEST_SKIP() << "this machine has fewer than two GPUs that this build can use";
  std::unique_ptr<Engine> engines[2];
  std::vector<int32_t> tokens[2];
  for (int i = 0; i < 2; ++i) {
    EngineConfig config;
    config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
    config.device = {DeviceType::kCuda, i};
    config.max_total_tokens = 4096;
    config.max_running_requests = 4;
    engines[i] = std::make_unique<Engine>(config);
    for (const int length : {700, 3, 90})
      engines[i]->submit(std::vector<int32_t>(static_cast<size_t>(length), 50 + length % 40),
                         {.max_new_tokens = 32, .ignore_eos = true});
  }
  bool running = true;
  while (running) {
    running = false;
    for (int i = 0; i < 2; ++i)
      running |= engines[i]->step([&](const StepOutput& output) { tokens[i].push_back(output.token_id); });
  }
  EXPECT_EQ(tokens[0].size(), 96u);
  EXPECT_EQ(tokens[0], tokens[1]);
}

}  // namespace
}  // namespace attend
