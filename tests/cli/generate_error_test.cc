// Input that `attend generate` rejects, and its error messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/run_command.h"

namespace attend {
namespace {

using testing::HasSubstr;
using namespace testing_support;

TEST(GenerateCommand, ReportsThatAModelHasNoChatTemplate) {
  const CommandResult ran = attend("generate --chat --prompt x --model-path " + kGolden);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("has no chat template; pass one with --chat-template"));
}

struct BadInput {
  std::string arguments, message;

  friend void PrintTo(const BadInput& input, std::ostream* out) { *out << input.arguments; }
};

class GenerateBadInput : public testing::TestWithParam<BadInput> {};

TEST_P(GenerateBadInput, ExitsWithTwoAndReportsWhy) {
  const CommandResult ran = attend("generate " + GetParam().arguments);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr(GetParam().message));
  EXPECT_THAT(attend("generate " + GetParam().arguments, Streams::kStdout).out, testing::IsEmpty());
}

const std::string kPrompt = " --prompt x";
INSTANTIATE_TEST_SUITE_P(
    Cases, GenerateBadInput,
    testing::Values(
        BadInput{"--prompt x", "--model-path"}, BadInput{"--model-path " + kTinyModel, "no prompt"},
        BadInput{"--model-path /nowhere" + kPrompt, "/nowhere"},
        BadInput{"--model-path " + kGolden + kPrompt, "tokenizer.json"},
        BadInput{"--chat --model-path " + kTinyModel + "/.." + kPrompt, "no config.json"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --page-size 0", "--page-size '0'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --page-size 3", "page_size 3"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --speculative-algorithm DFLASH",
                 "speculative_algorithm 'DFLASH': expected NGRAM"},
        BadInput{"--model-path " + kTinyModel + kPrompt +
                     " --speculative-algorithm NGRAM --speculative-suffix-max-spec-factor 2",
                 "--speculative-suffix-max-spec-factor: no effect with --speculative-algorithm NGRAM"},
        BadInput{"--model-path " + kTinyModel + kPrompt +
                     " --speculative-algorithm SUFFIX --suffix-decoding-min-token-prob 1.5",
                 "speculative_suffix_min_token_prob 1.5: 0 to 1"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --speculative-algorithm STANDALONE",
                 "speculative_draft_model_path: required"},
        BadInput{"--model-path " + kTinyModel + kPrompt +
                     " --speculative-algorithm STANDALONE --speculative-draft-model-path " + kGolden,
                 "vocab_size 128: expected the target's"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --speculative-num-steps 2",
                 "--speculative-num-steps: requires --speculative-algorithm"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --speculative-num-draft-tokens 4",
                 "--speculative-num-draft-tokens: requires --speculative-algorithm"},
        BadInput{"--model-path " + kTinyModel + kPrompt +
                     " --speculative-algorithm NGRAM --speculative-ngram-min-match-window-size 13",
                 "speculative_ngram_max_match_window_size 12: at least"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --attention-backend fa9",
                 "expected one of torch_native"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --attention-backend flashmla", "flashmla"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --kv-cache-dtype int3", "int3"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --device cuda:99", "device cuda"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --device tpu", "tpu"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --max-new-tokens 0",
                 "--max-new-tokens '0': expected an integer from 1 to 2147483647 in decimal digits, or -1"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --temperature -1",
                 "--temperature '-1': expected a number from 0 to 100"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " -n abc",
                 "--max-new-tokens 'abc': expected an integer from 1 to 2147483647 in decimal digits, or -1"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " -n -2", "--max-new-tokens '-2'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --context-length -1",
                 "--context-length '-1': expected an integer from 0 to 2147483647"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --threads 0", "--threads '0'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --threads 100000",
                 "--threads '100000': expected an integer from 1 to 1024"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --page-size x",
                 "attend: --page-size 'x': expected an integer from 1 to 256 in decimal digits"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --page-size ''",
                 "--page-size '': expected an integer"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --page-size 0x10", "--page-size '0x10'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --page-size 16.0", "--page-size '16.0'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --page-size ' 16'", "--page-size ' 16'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --page-size 99999999999",
                 "--page-size '99999999999'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --page-size 16 --page-size 32", "--page-size"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --seed -2",
                 "--seed '-2': expected an integer from 0 to 18446744073709551615"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --seed 18446744073709551616", "--seed"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --random-seed -1", "--random-seed '-1'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --temperature nan", "--temperature 'nan'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --temperature inf",
                 "--temperature 'inf': expected a number from 0 to 100"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --temperature 1e99", "--temperature '1e99'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --top-p 0",
                 "--top-p '0': expected a number above 0 and at most 1"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --stop-token-ids '3;4'",
                 "--stop-token-ids '3;4': expected integers with commas between them, each 0 or above"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --stop-token-ids 3,x", "--stop-token-ids '3,x'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --device cpu --cuda-graph-bs 1,2,99999999999",
                 "--cuda-graph-bs '1,2,99999999999': expected integers with commas between them, each 1 to "},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --stop-token-ids 3,99999",
                 "stop_token_ids: 99999"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --stop-token-ids -1", "stop_token_ids: -1"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --stop ''",
                 "--stop '': expected a non-empty text"},
        BadInput{"--model-path " + kTinyModel + "/config.json" + kPrompt,
                 "config.json: expected a model directory"},
        BadInput{"--model-path " + kTinyModel + " --prompts-file /dev/zero", "/dev/zero:1: byte 1 is NUL"},
        BadInput{"--model-path " + kTinyModel + " --prompts-file " + kTinyModel,
                 "attend-tiny: is a directory: expected a regular file"},
        BadInput{"--model-path ''" + kPrompt, "--model-path '': expected a non-empty text"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --attention-backend ''",
                 "--attention-backend ''"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --kv-cache-dtype ''", "--kv-cache-dtype ''"},
        BadInput{"--model-path " + kTinyModel + " --prompts-file ''", "--prompts-file ''"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --max-total-tokens 9223372036854775807",
                 "max_total_tokens"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --max-total-tokens 0", "--max-total-tokens '0'"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --prompts-file /nowhere.txt",
                 "expected one of them"},
        BadInput{"--model-path " + kTinyModel + kPrompt + " --file /nowhere.txt", "expected one of them"},
        BadInput{"--model-path " + kTinyModel + " --file /dev/null", "/dev/null: no prompt"},
        BadInput{"--model-path " + kTinyModel + " --prompts-file /nowhere.txt", "/nowhere.txt"}));

TEST(GenerateCommand, IgnoresGpuFlagsOnACpuWithAWarning) {
  const std::string generate = "generate -n 1 --device cpu --prompt a --model-path " + kTinyModel;
  for (const std::string flags :
       {"--mem-fraction-static 0.5", "--disable-cuda-graph", "--cuda-graph-bs 4", "--cuda-graph-max-bs 4"}) {
    const CommandResult ran = attend(generate + " " + flags);
    EXPECT_EQ(ran.exit_code, 0) << flags;
    EXPECT_THAT(ran.out,
                HasSubstr("warning: " + flags.substr(0, flags.find(' ')) + ": ignored; only for GPUs"));
  }
}

TEST(GenerateCommand, RejectsLogprobsThatWouldNotBePrinted) {
  for (const std::string flag : {"--logprobs", "--prompt-logprobs"}) {
    const CommandResult ran =
        attend("generate -n 1 --prompt a --model-path " + kTinyModel + " " + flag + " 1");
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.out, HasSubstr(flag + ": only with --json"));
  }
}

TEST(GenerateCommand, RejectsAPromptThatIsNotText) {
  const CommandResult ran =
      attend("generate -n 1 --model-path " + kTinyModel + " --prompt a --prompt \"$(printf 'b\\377')\"");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("prompt 2: expected UTF-8 text"));
}

}  // namespace
}  // namespace attend
