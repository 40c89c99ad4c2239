// Sampling options of attend generate: flags, prompt fields and generation_config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace testing_support;

// Folder with the tiny model's config and another generation_config.json.
std::string model_with(const std::string& generation_config) {
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  const auto folder = std::filesystem::path(testing::TempDir()) / ("attend_sampling_" + test);
  std::filesystem::create_directories(folder);
  for (const char* file : {"config.json", "tokenizer.json"})
    std::filesystem::copy_file(kTinyModel + "/" + file, folder / file,
                               std::filesystem::copy_options::overwrite_existing);
  std::ofstream(folder / "generation_config.json") << generation_config;
  return folder.string();
}

std::string sampling_line(const std::string& generation_config, const std::string& flags) {
  const CommandResult ran = attend("generate --load-format dummy -n 1 --prompt a --model-path " +
                                   model_with(generation_config) + " " + flags);
  for (const std::string& line : split_lines(ran.out))
    if (const size_t at = line.find("sampling: "); at != line.npos) return line.substr(at);
  return ran.out;
}

constexpr const char* kSamples =
    R"({"do_sample": true, "temperature": 0.5, "top_k": 7, "top_p": 0.75, "repetition_penalty": 1.25})";

TEST(GenerationConfig, ProvidesDefaultsThatFlagsOverride) {
  EXPECT_EQ(sampling_line(kSamples, ""),
            "sampling: temperature 0.5*, top_k 7*, top_p 0.75*, repetition_penalty 1.25* (*: from "
            "generation_config.json)");
  EXPECT_EQ(sampling_line(kSamples, "--temperature 2 --top-k 0 --repetition-penalty 1"),
            "sampling: temperature 2, top_p 0.75* (*: from generation_config.json)");
  EXPECT_EQ(sampling_line(kSamples, "--temperature 0 --repetition-penalty 1"), "sampling: greedy");
}

TEST(GenerationConfig, IsGreedyWithoutDoSampleLikeTransformers) {
  const char* const config = R"({"temperature": 0.5, "top_k": 7})";
  EXPECT_EQ(sampling_line(config, ""), "sampling: greedy");
  EXPECT_EQ(sampling_line(R"({"do_sample": false, "temperature": 0.5})", ""), "sampling: greedy");
  EXPECT_EQ(sampling_line(R"({"do_sample": true})", ""), "sampling: temperature 1 (default)");
  EXPECT_EQ(sampling_line(config, "--seed 3"),
            "sampling: temperature 0.5*, top_k 7* (*: from generation_config.json)");
}

TEST(SamplingFlags, EnableSampling) {
  for (const char* flag : {"--top-k 4", "--top-p 0.5", "--min-p 0.1", "--seed 1"})
    EXPECT_THAT(sampling_line("{}", flag), HasSubstr("sampling: temperature 1 (default)")) << flag;
  EXPECT_EQ(sampling_line("{}", "--top-k 4 --temperature 0"), "sampling: greedy");
}

TEST(GenerationConfig, ErrorsAreReportedBeforeLoadingWeights) {
  EXPECT_THAT(sampling_line(R"({"temperature": "hot"})", ""), HasSubstr("temperature"));
  EXPECT_THAT(sampling_line(R"({"top_p": 1.5})", ""), HasSubstr("top_p 1.5: expected a number from 0 to 1"));
  EXPECT_THAT(sampling_line(R"({"do_sample": 1})", ""), HasSubstr("do_sample"));
}

nlohmann::json generate_json(const std::string& line) {
  const CommandResult ran = attend("generate --json --model-path " + kTinyModel + " --prompts-file " +
                                       write_file("asks.jsonl", line + "\n"),
                                   Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& out : split_lines(ran.out)) all.push_back(nlohmann::json::parse(out));
  return all;
}

const std::string kAsk = R"({"prompt": "recall: sun=42, river=17, fox=80; river=")";

TEST(PromptFields, MatchTheFlags) {
  const nlohmann::json plain = generate_json(kAsk + "}");
  ASSERT_EQ(plain.size(), 1u);
  EXPECT_EQ(plain[0]["text"], "17");
  EXPECT_EQ(plain[0]["matched"], 1) << "the end-of-sequence token";
  EXPECT_FALSE(plain[0].contains("logprobs"));
  EXPECT_FALSE(plain[0].contains("index"));

  const nlohmann::json scored = generate_json(kAsk + R"(, "logprobs": 2, "prompt_logprobs": 0, "n": 2})");
  ASSERT_EQ(scored.size(), 2u);
  EXPECT_EQ(scored[1]["index"], 1);
  const auto& first = scored[0]["logprobs"][0];
  EXPECT_EQ(first["token_id"], scored[0]["output_ids"][0]);
  EXPECT_EQ(first["top"].size(), 2u);
  EXPECT_EQ(first["top"][0]["logprob"], first["logprob"]);
  EXPECT_EQ(scored[0]["prompt_logprobs"].size(), scored[0]["input_ids"].size());
  EXPECT_TRUE(scored[0]["prompt_logprobs"][0].is_null());
  EXPECT_LT(scored[0]["prompt_logprobs"][1]["logprob"], 0.0);

  const std::string id = std::to_string(plain[0]["output_ids"][0].get<int>());
  EXPECT_NE(generate_json(kAsk + R"(, "logit_bias": {")" + id + R"(": -100}})")[0]["output_ids"][0],
            plain[0]["output_ids"][0]);
  const nlohmann::json stopped =
      generate_json(kAsk + R"(, "stop": "7", "include_stop_str_in_output": true, "echo": true})");
  EXPECT_EQ(stopped[0]["text"], "recall: sun=42, river=17, fox=80; river=17");
  EXPECT_EQ(stopped[0]["matched"], "7");
}

TEST(PromptFields, ErrorsNameLineAndField) {
  const auto rejected = [](const std::string& fields) {
    return attend("generate --model-path " + kTinyModel + " --prompts-file " +
                  write_file("rejected_requests.jsonl", kAsk + "}\n" + kAsk + ", " + fields + "}\n"))
        .out;
  };
  EXPECT_THAT(rejected(R"("temperature": "hot")"),
              HasSubstr(":2: \"temperature\" is \"hot\", expected a number"));
  EXPECT_THAT(rejected(R"("top_p": 2)"), HasSubstr(":2: top_p 2: above 0, at most 1"));
  EXPECT_THAT(rejected(R"("n": 1.5)"), HasSubstr(":2: \"n\" is 1.5, expected an integer"));
  EXPECT_THAT(rejected(R"("stop": [1])"),
              HasSubstr(":2: \"stop\" is [1], expected a string or an array of strings"));
  EXPECT_THAT(rejected(R"("logit_bias": {"five": 1})"), HasSubstr("logit_bias 'five'"));
  EXPECT_THAT(rejected(R"("seed": -1)"), HasSubstr("expected an integer from 0"));
}

TEST(SamplingFlags, ReportUnsupportedValues) {
  const auto rejected = [](const std::string& flags) {
    return attend("generate --prompt a --model-path " + kTinyModel + " " + flags).out;
  };
  EXPECT_THAT(rejected("--logit-bias 5"), HasSubstr("--logit-bias '5': expected TOKEN_ID=BIAS"));
  EXPECT_THAT(rejected("--logit-bias 5=hot"), HasSubstr("--logit-bias 'hot'"));
  EXPECT_THAT(rejected("--num-completions 0"), HasSubstr("n 0: 1 to 128"));
  EXPECT_THAT(rejected("--json --logprobs 30"), HasSubstr("logprobs 30: 0 to 20"));
}

}  // namespace
}  // namespace attend
