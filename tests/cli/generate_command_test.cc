// Command-line tests of `attend generate`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/run_command.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace testing_support;

TEST(GenerateCommand, PrintsOnlyTheCompletionOfASinglePrompt) {
  const CommandResult ran = attend("generate --model-path " + kTinyModel +
                                       " --prompt 'copy: laugh [ scout coffee writer pea ] roll milk ->'",
                                   Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(split_lines(ran.out).size(), 1u);
  EXPECT_THAT(ran.out, HasSubstr("scout coffee writer pea"));
}

TEST(GenerateCommand, AppliesTheModelsChatTemplate) {
  const std::string prompt = " --prompt ' copy: laugh [ scout coffee ] roll -> '";
  EXPECT_EQ(attend("generate --chat --model-path " + kTinyModel + prompt, Streams::kStdout).out,
            " scout coffee\n");
  const std::string file = write_file("own.jinja", "{{ bos_token }}reverse: laugh [ sun fox ] ->");
  EXPECT_EQ(
      attend("generate --model-path " + kTinyModel + prompt + " --chat-template " + file, Streams::kStdout)
          .out,
      " fox sun\n");
}

TEST(GenerateCommand, ReportsChoicesAndPoolUsage) {
  const CommandResult ran = attend("generate --device cpu --model-path " + kTinyModel +
                                   " --prompt 'copy: laugh [ scout ] roll ->'");
  EXPECT_THAT(ran.out, HasSubstr("attention backend: prefill cpu, decode cpu (cpu: first choice for cpu"));
  EXPECT_THAT(ran.out, HasSubstr("KV pool peak usage: "));
  EXPECT_THAT(ran.out, HasSubstr("tokens/s"));
}

TEST(GenerateCommand, WritesATraceOfItsSteps) {
  const std::string file = write_file("steps.json", "");
  const CommandResult ran =
      attend("generate --device cpu --model-path " + kTinyModel +
             " --prompt 'copy: laugh [ scout ] roll ->' -n 3 --ignore-eos --profile " + file);
  EXPECT_EQ(ran.exit_code, 0);
  std::ifstream written(file);
  const nlohmann::json trace = nlohmann::json::parse(written);
  std::map<std::string, int> num_spans;
  for (const nlohmann::json& event : trace.at("traceEvents"))
    ++num_spans[event.at("name").get<std::string>()];
  // One step computes the prompt and the first token, one step each further token.
  EXPECT_EQ(num_spans["forward"], 3);
  EXPECT_EQ(num_spans["sampling"], 3);
}

TEST(GenerateCommand, RejectsAnUnwritableTraceFileBeforeRunning) {
  const CommandResult ran = attend("generate --model-path " + kTinyModel + " --prompt x --profile /");
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("--profile /: is a directory: expected a file"));
}

TEST(GenerateCommand, ReadsLeadingZerosAsDecimal) {
  const CommandResult ran = attend(
      "generate --model-path " + kTinyModel + " --prompt x -n 010 --ignore-eos --json", Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(ran.out).at("output_ids").size(), 10u);
}

// Copies the bundled model without weights, with a changed config, and returns the folder.
std::string changed_model(const std::string& key, const nlohmann::json& value) {
  // Tests run concurrently, each in its own process.
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  const auto folder = std::filesystem::path(testing::TempDir()) / ("attend_" + test);
  std::filesystem::create_directories(folder);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(kTinyModel + "/config.json"));
  config[key] = value;
  std::ofstream(folder / "config.json") << config;
  std::filesystem::copy_file(kTinyModel + "/tokenizer.json", folder / "tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  return folder.string();
}

TEST(GenerateCommand, WarnsAboutTokensBeyondTheVocabulary) {
  const std::string model = changed_model("vocab_size", 100);
  const std::string generate = "generate --load-format dummy -n 1 --model-path " + model;
  const CommandResult ran = attend(generate + " --prompt a");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("tokenizer.json: ids 0 to "));
  EXPECT_THAT(ran.out, HasSubstr("vocab_size is 100: prompts with a token"));
  const CommandResult rejected = attend(generate + " --prompt ' maple'");
  EXPECT_EQ(rejected.exit_code, 2);
  EXPECT_THAT(rejected.out, HasSubstr("attend: prompt 1: token id "));
}

TEST(GenerateCommand, WarnsAboutMissingEosTokens) {
  const CommandResult ran = attend("generate --load-format dummy -n 1 --prompt a --model-path " +
                                   changed_model("eos_token_id", std::vector<int>{1, 99999}));
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("eos_token_id 99999: config.json's vocab_size is 2112: no request"));
}

TEST(GenerateCommand, LogKernelsPrintsEachChoiceOnce) {
  const std::string generate = "generate --device cpu -n 4 --prompt a --model-path " + kTinyModel;
  EXPECT_THAT(attend(generate).out, Not(HasSubstr("kernel: ")));
  const CommandResult ran = attend(generate + " --log-kernels");
  EXPECT_EQ(ran.exit_code, 0);
  std::istringstream lines(ran.out);
  std::set<std::string> kernels;
  for (std::string line; std::getline(lines, line);)
    if (line.find("kernel: ") != std::string::npos) {
      EXPECT_TRUE(kernels.insert(line).second) << line;
    }
  for (const char* op : {"kernel: linear of 1 x ", "kernel: attention of "})
    EXPECT_THAT(kernels, testing::Contains(HasSubstr(op)));
}

TEST(GenerateCommand, NamesTheTensorWithNonFiniteWeights) {
  const std::string model = changed_model("eos_token_id", 1);
  const std::string weights = model + "/model.safetensors";
  std::filesystem::copy_file(kTinyModel + "/model.safetensors", weights,
                             std::filesystem::copy_options::overwrite_existing);
  std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-2, std::ios::end);
  file.write("\xff\x7f", 2);
  file.close();
  const CommandResult ran = attend("generate --prompt a --model-path " + model);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, StartsWith("attend: " + weights + ": tensor \"model."));
  EXPECT_THAT(ran.out, HasSubstr(" is NaN: expected finite numbers"));
}

// The exit code is the only sign of a truncated answer when only text is printed.
TEST(GenerateCommand, FailsIfAnAnswerIsIncomplete) {
  const std::string generate = "generate --device cpu -n 3 --ignore-eos --model-path " + kTinyModel;
  const CommandResult full = attend(generate + " --max-queued-requests 2 -p a -p b -p c --json");
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_THAT(full.out, AllOf(HasSubstr("prompt 3: the request queue is full"), HasSubstr("\"queue_ms\":"),
                              Not(HasSubstr("\"queue_ms\":-"))));
  const std::string file =
      write_file("timeout.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"timeout\": 1e-9}\n");
  const CommandResult late = attend(generate + " --prompts-file " + file + " --show-prompts");
  EXPECT_EQ(late.exit_code, 2);
  EXPECT_THAT(late.out, AllOf(HasSubstr("[1] a\n"), HasSubstr("prompt 2: the deadline has passed")));
}

TEST(GenerateCommand, CountsEveryGeneratedToken) {
  const CommandResult ran =
      attend("generate -n 3 --ignore-eos --prompt a --prompt b --model-path " + kTinyModel);
  EXPECT_THAT(ran.out, HasSubstr("6 tokens generated"));
}

TEST(GenerateCommand, ADraftModelKeepsAnswersAndReportsAcceptance) {
  const std::string command =
      "generate --prompt 'The weather' --max-new-tokens 60 --ignore-eos --model-path " + kTinyModel;
  const std::string flags =
      " --speculative-algorithm STANDALONE --speculative-num-steps 4 --speculative-draft-model-path " +
      kTinyModel;
  const CommandResult plain = attend(command, Streams::kStdout);
  EXPECT_EQ(attend(command + flags, Streams::kStdout).out, plain.out);
  const CommandResult run = attend(command + flags);
  EXPECT_THAT(run.out, HasSubstr("speculation: STANDALONE, up to 5 tokens verified per request and step"));
  EXPECT_THAT(run.out, testing::ContainsRegex("speculation: ([0-9]+) tokens drafted, [1-9][0-9]* accepted"));
}

TEST(GenerateCommand, SpeculationKeepsAnswersAndReportsAcceptance) {
  const std::string prompt =
      "'copy: laugh [ scout coffee writer pea roll milk ] x ->' --max-new-tokens 120 --ignore-eos "
      "--model-path " +
      kTinyModel;
  const std::string flags = " --speculative-algorithm NGRAM --speculative-num-draft-tokens 5";
  const CommandResult plain = attend("generate --prompt " + prompt, Streams::kStdout);
  EXPECT_EQ(attend("generate --prompt " + prompt + flags, Streams::kStdout).out, plain.out);
  const CommandResult run = attend("generate --json --prompt " + prompt + flags);
  EXPECT_THAT(run.out, HasSubstr("speculation: NGRAM, up to 5 tokens verified per request and step"));
  EXPECT_THAT(run.out, testing::ContainsRegex("speculation: [0-9]+ tokens drafted, [1-9][0-9]* accepted"));
  for (const std::string& line : split_lines(run.out)) {
    if (!line.starts_with("{")) continue;
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json.at("spec_verify_ct").get<int>() + json.at("spec_accept_token_num").get<int>(), 119);
  }
}

TEST(GenerateCommand, ReportsTheNumberOfThreads) {
  EXPECT_THAT(attend("generate --device cpu --threads 1 -n 1 --prompt a --model-path " + kTinyModel).out,
              HasSubstr(", 1 thread, activations"));
  EXPECT_THAT(attend("generate --device cpu --threads 3 -n 1 --prompt a --model-path " + kTinyModel).out,
              HasSubstr(", 3 threads, activations"));
}

TEST(GenerateCommand, EscapesFileContentsOnATerminal) {
  const CommandResult ran = attend("generate --prompt a --model-path " +
                                   changed_model("architectures", std::vector<std::string>{"\x1b[2JEvil"}));
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("architectures \"?[2JEvil\": attend supports "));
}

TEST(GenerateCommand, TreatsABracketedPromptAsText) {
  const CommandResult ran =
      attend("generate --model-path " + kTinyModel + " --prompt '[a,b]' --stop '[x,y]' -n 1 --json",
             Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  const auto lines = split_lines(ran.out);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(nlohmann::json::parse(lines[0]).at("prompt"), "[a,b]");
  EXPECT_EQ(attend("generate --model-path " + kTinyModel + " -p a b -n 1").exit_code, 2);
}

// CI sets the variable.
TEST(GenerateCommand, CompletesByAGrammar) {
  if (std::getenv("ATTEND_GRAMMAR_LIBRARY_PATH") == nullptr) GTEST_SKIP() << "no ATTEND_GRAMMAR_LIBRARY_PATH";
  const std::string generate = "generate -p sun -m " + kTinyModel;
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": false})";
  for (const std::string& value : {"'" + schema + "'", write_file("schema.json", schema)}) {
    const CommandResult ran = attend(generate + " --json-schema " + value, Streams::kStdout);
    EXPECT_EQ(ran.exit_code, 0) << value;
    EXPECT_EQ(nlohmann::json::parse(ran.out).at("a"), 1);
  }
  EXPECT_EQ(attend(generate + " --regex 'a{3}b'", Streams::kStdout).out, "aaab\n");
  EXPECT_EQ(attend(generate + " --ebnf " + write_file("xy.gbnf", "root ::= \"xy\""), Streams::kStdout).out,
            "xy\n");
  EXPECT_THAT(attend(generate + " --json-schema '{bad'").out, HasSubstr("the schema: expected JSON"));
}

}  // namespace
}  // namespace attend
