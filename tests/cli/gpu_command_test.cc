// `attend generate` and `attend backends` with --device cuda.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/tensor/cuda.h"
#include "tests/cli/run_command.h"

namespace attend {
namespace {

using testing::HasSubstr;
using namespace testing_support;

class CommandOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
  }
};

const std::string kGenerateOnGpu = "generate --model-path " + kTinyModel + " -n 24";
const std::string kPrompts =
    " --prompt 'recall: sun=42, river=17, fox=80; river=' --prompt 'recall: oak=5, jar=31; jar='";
const std::string kInF32 = " --dtype float32 --kv-cache-dtype float32";

TEST_F(CommandOnGpu, MatchesTheCpuWithAndWithoutGraphs) {
  const CommandResult on_cpu = attend(kGenerateOnGpu + kPrompts + " --device cpu" + kInF32, Streams::kStdout);
  ASSERT_EQ(on_cpu.exit_code, 0);
  for (const std::string flags :
       {"", " --disable-cuda-graph", " --cuda-graph-bs 1", " --cuda-graph-max-bs 2"}) {
    const CommandResult on_gpu =
        attend(kGenerateOnGpu + kPrompts + " --device cuda" + kInF32 + flags, Streams::kStdout);
    EXPECT_EQ(on_gpu.exit_code, 0) << flags;
    EXPECT_EQ(on_gpu.out, on_cpu.out) << flags;
  }
}

TEST_F(CommandOnGpu, UsesAGpuByDefault) {
  EXPECT_THAT(attend(kGenerateOnGpu + kPrompts).out, testing::ContainsRegex("[0-9]+ SMs, activations in "));
}

TEST_F(CommandOnGpu, HonorsGraphSizeFlags) {
  EXPECT_THAT(attend(kGenerateOnGpu + kPrompts + " --cuda-graph-max-bs 4").out,
              HasSubstr("CUDA graphs: 3 decode batch sizes up to 4, "));
  EXPECT_THAT(attend(kGenerateOnGpu + kPrompts + " --disable-cuda-graph").out, Not(HasSubstr("CUDA graphs")));
}

TEST_F(CommandOnGpu, RejectsValuesThatNoGpuSupports) {
  const std::pair<std::string, std::string> cases[] = {
      {"--mem-fraction-static 0", "mem_fraction_static 0: above 0 and below 1"},
      {"--mem-fraction-static 1.5", "mem_fraction_static 1.5: above 0 and below 1"},
      {"--cuda-graph-bs 0", "cuda_graph_bs 0: 1 to"},
      {"--cuda-graph-bs 100000", "cuda_graph_bs 100000: 1 to"},
      {"--cuda-graph-max-bs 0", "--cuda-graph-max-bs '0'"},
      {"--max-total-tokens 2000000000", " of them weights, free "},
      {"--device cuda:99", "device cuda:99: this machine has "},
  };
  for (const auto& [flags, message] : cases) {
    const CommandResult ran = attend(kGenerateOnGpu + kPrompts + " " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(message)) << flags;
  }
}

TEST_F(CommandOnGpu, ListsTheBackendsOfTheGpu) {
  const CommandResult ran = attend("backends --device cuda --model-path " + kTinyModel);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("triton"));
}

// On a machine without a GPU, the error names the device.
TEST(CommandWithoutAGpu, RejectsItByName) {
  if (cuda::device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  const CommandResult ran = attend(kGenerateOnGpu + " --prompt a --device cuda");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("device cuda:0: "));
}

}  // namespace
}  // namespace attend
