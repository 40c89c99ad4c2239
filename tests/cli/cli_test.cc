// The commands as a user runs them: attend generate, and what all commands share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/run_command.h"
#include "tests/support/overflowing_model.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace testing_support;

TEST(AttendCommand, TellsItsVersionItsCommitAndTheDevicesThatThereAre) {
  const Ran ran = attend("--version", Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  const auto lines = lines_of(ran.out);
  ASSERT_GE(lines.size(), 3u);
  EXPECT_THAT(lines[0], testing::MatchesRegex("attend [0-9]+\\.[0-9]+\\.[0-9]+ \\(git .+\\)"));
  EXPECT_THAT(lines[1], testing::MatchesRegex("cpu     .+, [0-9]+ cores, .+"));
  EXPECT_THAT(lines[2], StartsWith("cuda"));
}

// Stale? build/release/attend backends --markdown > docs/support-matrix.md
TEST(SupportMatrix, InTheDocsIsWhatTheCapabilityRecordsSay) {
  std::ifstream file(ATTEND_SOURCE_DIR "/docs/support-matrix.md");
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), attend("backends --markdown", Streams::kStdout).out);
}

TEST(GenerateCommand, PrintsOnlyTheCompletionOfASinglePrompt) {
  const Ran ran = attend(
      "generate --model-path " + kTiny + " --prompt 'copy: laugh [ scout coffee writer pea ] roll milk ->'",
      Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(lines_of(ran.out).size(), 1u);
  EXPECT_THAT(ran.out, HasSubstr("scout coffee writer pea"));
}

TEST(GenerateCommand, AppliesTheModelsChatTemplate) {
  const std::string prompt = " --prompt ' copy: laugh [ scout coffee ] roll -> '";
  EXPECT_EQ(attend("generate --chat --model-path " + kTiny + prompt, Streams::kStdout).out,
            " scout coffee\n");
  const std::string file = write_file("own.jinja", "{{ bos_token }}reverse: laugh [ sun fox ] ->");
  EXPECT_EQ(
      attend("generate --model-path " + kTiny + prompt + " --chat-template " + file, Streams::kStdout).out,
      " fox sun\n");
}

TEST(GenerateCommand, SaysThatAModelHasNoChatTemplate) {
  const Ran ran = attend("generate --chat --prompt x --model-path " + kGolden);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("has no chat template; give one with --chat-template"));
}

TEST(GenerateCommand, PrintsAJsonObjectPerPromptInOrder) {
  const std::string file =
      write_file("prompts.jsonl",
                 "{\"input_ids\": [5, 6, 7]}\n\n{\"input_ids\": [9]}\n{\"input_ids\": [20, 21, 22, 23]}\n");
  const Ran ran = attend("generate --model-path " + kGolden + " --prompts-file " + file +
                             " --max-new-tokens 5 --ignore-eos --json",
                         Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  const auto lines = lines_of(ran.out);
  ASSERT_EQ(lines.size(), 3u);
  const size_t lengths[] = {3, 1, 4};
  for (size_t i = 0; i < 3; ++i) {
    const auto json = nlohmann::json::parse(lines[i]);
    EXPECT_EQ(json.at("input_ids").size(), lengths[i]);
    EXPECT_EQ(json.at("output_ids").size(), 5u);
    EXPECT_EQ(json.at("finish_reason"), "length");
    for (const char* key : {"prompt", "text"}) EXPECT_TRUE(json.at(key).is_string());
    EXPECT_GT(json.at("timings").at("total_ms"), 0.0);
  }
}

TEST(GenerateCommand, ReadsPlainTextPromptsLineByLine) {
  const std::string file = write_file(
      "prompts.txt", "copy: laugh [ scout coffee ] roll ->\nreverse: laugh [ scout coffee ] roll ->\n");
  const Ran ran =
      attend("generate --model-path " + kTiny + " --prompts-file " + file + " --json", Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  const auto lines = lines_of(ran.out);
  ASSERT_EQ(lines.size(), 2u);
  const auto reversed = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(reversed.at("prompt"), "reverse: laugh [ scout coffee ] roll ->");
  EXPECT_EQ(reversed.at("text"), " coffee scout");
  EXPECT_EQ(reversed.at("finish_reason"), "stop");
}

TEST(GenerateCommand, SaysWhatWasChosenAndHowFullThePoolGot) {
  const Ran ran = attend("generate --model-path " + kTiny + " --prompt 'copy: laugh [ scout ] roll ->'");
  EXPECT_THAT(ran.out, HasSubstr("attention backend: prefill cpu, decode cpu (cpu: first choice for cpu"));
  EXPECT_THAT(ran.out, HasSubstr("KV pool at its fullest: "));
  EXPECT_THAT(ran.out, HasSubstr("tokens/s"));
}

TEST(GenerateCommand, CountsRightAnswers) {
  const std::string file =
      write_file("answers.jsonl",
                 "{\"prompt\": \"copy: laugh [ scout coffee ] roll ->\", \"answer\": \" scout coffee\"}\n"
                 "{\"prompt\": \"copy: laugh [ scout coffee ] roll ->\", \"answer\": \" something else\"}\n");
  const Ran ran = attend("generate --model-path " + kTiny + " --prompts-file " + file);
  EXPECT_EQ(lines_of(ran.out).back(), "answers: 1 of 2 right");
}

TEST(ChatCommand, AnswersEachTurnOfAPipeAndTakesCommands) {
  const std::string file = write_file("turns.txt",
                                      "copy: laugh [ scout coffee ] roll ->\n\n"
                                      "\"\"\"reverse: laugh [ sun fox ] ->\"\"\"\n/retry\n/undo\n/history\n");
  const Ran ran = attend("chat --model-path " + kTiny + " < " + file, Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out,
            " scout coffee\n fox sun\n fox sun\nuser: copy: laugh [ scout coffee ] roll ->\nassistant:  "
            "scout coffee\n");
}

TEST(ChatCommand, EndsAPipeWithTheFirstMistake) {
  const Ran ran = attend("chat --model-path " + kTiny + " < " + write_file("turns.txt", "/nothing\n"));
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("/nothing: no such command"));
}

TEST(ServeCommand, RefusesAnAddressThatCanNotBeHadBeforeItReadsWeights) {
  const auto model = std::filesystem::path(testing::TempDir()) / "attend_config_alone";
  std::filesystem::create_directories(model);
  std::filesystem::copy_file(kTiny + "/config.json", model / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  const Ran ran = attend("serve --model-path " + model.string() + " --host 192.0.2.1 --port 80");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("--host 192.0.2.1 --port 80: can not listen there"));
}

TEST(ServeCommand, RefusesFlagsOutOfRange) {
  const std::pair<const char*, const char*> cases[] = {
      {"--port 70000", "--port '70000': expected a whole number from 0 to 65535"},
      {"--unix-socket x --port 1", "instead of --host and --port"},
      {"--served-model-name \"\"", "--served-model-name '': expected a name"},
      {"--schedule-policy lpm --disable-radix-cache --page-size 3",
       "--schedule-policy lpm: with --disable-radix-cache no prefix is cached: as fcfs"},
      {"--max-connections 0", "--max-connections '0': expected a whole number from 1"},
      {"--port 0 --chat-template nothing", "--chat-template nothing: no such file"}};
  for (const auto& [flags, message] : cases) {
    const Ran ran = attend("serve --model-path " + kTiny + " " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(message));
  }
}

struct BadInput {
  std::string arguments, message;

  friend void PrintTo(const BadInput& input, std::ostream* out) { *out << input.arguments; }
};

class GenerateBadInput : public testing::TestWithParam<BadInput> {};

TEST_P(GenerateBadInput, ExitsWithTwoAndSaysWhy) {
  const Ran ran = attend("generate " + GetParam().arguments);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr(GetParam().message));
  EXPECT_THAT(attend("generate " + GetParam().arguments, Streams::kStdout).out, testing::IsEmpty());
}

const std::string kPrompt = " --prompt x";
INSTANTIATE_TEST_SUITE_P(
    Cases, GenerateBadInput,
    testing::Values(
        BadInput{"--prompt x", "--model-path"}, BadInput{"--model-path " + kTiny, "no prompt"},
        BadInput{"--model-path /nowhere" + kPrompt, "/nowhere"},
        BadInput{"--model-path " + kGolden + kPrompt, "tokenizer.json"},
        BadInput{"--model-path " + kTiny + kPrompt + " --page-size 0", "--page-size '0'"},
        BadInput{"--model-path " + kTiny + kPrompt + " --page-size 3", "page_size 3"},
        BadInput{"--model-path " + kTiny + kPrompt + " --speculative-algorithm EAGLE3",
                 "speculative_algorithm EAGLE3: expected NGRAM"},
        BadInput{
            "--model-path " + kTiny + kPrompt + " --speculative-num-draft-tokens 4",
            "--speculative-num-draft-tokens: nothing is drafted; expected it beside --speculative-algorithm"},
        BadInput{"--model-path " + kTiny + kPrompt +
                     " --speculative-algorithm NGRAM --speculative-ngram-min-match-window-size 13",
                 "speculative_ngram_max_match_window_size 12: at least"},
        BadInput{"--model-path " + kTiny + kPrompt + " --attention-backend fa9",
                 "expected one of torch_native"},
        BadInput{"--model-path " + kTiny + kPrompt + " --attention-backend flashmla", "flashmla"},
        BadInput{"--model-path " + kTiny + kPrompt + " --kv-cache-dtype int3", "int3"},
        BadInput{"--model-path " + kTiny + kPrompt + " --device cuda:99", "device cuda"},
        BadInput{"--model-path " + kTiny + kPrompt + " --device tpu", "tpu"},
        BadInput{
            "--model-path " + kTiny + kPrompt + " --max-new-tokens 0",
            "--max-new-tokens '0': expected a whole number from 1 to 2147483647 in decimal digits, or -1"},
        BadInput{"--model-path " + kTiny + kPrompt + " --temperature -1",
                 "--temperature '-1': expected a number from 0 to 100"},
        BadInput{
            "--model-path " + kTiny + kPrompt + " -n abc",
            "--max-new-tokens 'abc': expected a whole number from 1 to 2147483647 in decimal digits, or -1"},
        BadInput{"--model-path " + kTiny + kPrompt + " -n -2", "--max-new-tokens '-2'"},
        BadInput{"--model-path " + kTiny + kPrompt + " --context-length -1",
                 "--context-length '-1': expected a whole number from 0 to 2147483647"},
        BadInput{"--model-path " + kTiny + kPrompt + " --threads 0", "--threads '0'"},
        BadInput{"--model-path " + kTiny + kPrompt + " --threads 100000",
                 "--threads '100000': expected a whole number from 1 to 1024"},
        BadInput{"--model-path " + kTiny + kPrompt + " --page-size x",
                 "attend: --page-size 'x': expected a whole number from 1 to 256 in decimal digits"},
        BadInput{"--model-path " + kTiny + kPrompt + " --page-size ''",
                 "--page-size '': expected a whole number"},
        BadInput{"--model-path " + kTiny + kPrompt + " --page-size 0x10", "--page-size '0x10'"},
        BadInput{"--model-path " + kTiny + kPrompt + " --page-size 16.0", "--page-size '16.0'"},
        BadInput{"--model-path " + kTiny + kPrompt + " --page-size ' 16'", "--page-size ' 16'"},
        BadInput{"--model-path " + kTiny + kPrompt + " --page-size 99999999999", "--page-size '99999999999'"},
        BadInput{"--model-path " + kTiny + kPrompt + " --page-size 16 --page-size 32", "--page-size"},
        BadInput{"--model-path " + kTiny + kPrompt + " --seed -2",
                 "--seed '-2': expected a whole number from 0 to 18446744073709551615"},
        BadInput{"--model-path " + kTiny + kPrompt + " --seed 18446744073709551616", "--seed"},
        BadInput{"--model-path " + kTiny + kPrompt + " --random-seed -1", "--random-seed '-1'"},
        BadInput{"--model-path " + kTiny + kPrompt + " --temperature nan", "--temperature 'nan'"},
        BadInput{"--model-path " + kTiny + kPrompt + " --temperature inf",
                 "--temperature 'inf': expected a number from 0 to 100"},
        BadInput{"--model-path " + kTiny + kPrompt + " --temperature 1e99", "--temperature '1e99'"},
        BadInput{"--model-path " + kTiny + kPrompt + " --top-p 0",
                 "--top-p '0': expected a number above 0 and at most 1"},
        BadInput{"--model-path " + kTiny + kPrompt + " --stop-token-ids '3;4'",
                 "--stop-token-ids '3;4': expected whole numbers with commas between them, each 0 or above"},
        BadInput{"--model-path " + kTiny + kPrompt + " --stop-token-ids 3,x", "--stop-token-ids '3,x'"},
        BadInput{
            "--model-path " + kTiny + kPrompt + " --device cpu --cuda-graph-bs 1,2,99999999999",
            "--cuda-graph-bs '1,2,99999999999': expected whole numbers with commas between them, each 1 to "},
        BadInput{"--model-path " + kTiny + kPrompt + " --device cpu --cuda-graph-bs 1,2",
                 "--cuda-graph-bs: for GPUs alone"},
        BadInput{"--model-path " + kTiny + kPrompt + " --stop-token-ids 3,99999", "stop_token_ids: 99999"},
        BadInput{"--model-path " + kTiny + kPrompt + " --stop-token-ids -1", "stop_token_ids: -1"},
        BadInput{"--model-path " + kTiny + kPrompt + " --stop ''", "stop: an empty string"},
        BadInput{"--model-path " + kTiny + "/config.json" + kPrompt,
                 "config.json: expected a model directory"},
        BadInput{"--model-path " + kTiny + " --prompts-file /dev/zero", "/dev/zero:1: byte 1 is NUL"},
        BadInput{"--model-path " + kTiny + " --prompts-file " + kTiny,
                 "attend-tiny: is a directory: expected a regular file"},
        BadInput{"--model-path ''" + kPrompt, "--model-path '': expected a text that is not empty"},
        BadInput{"--model-path " + kTiny + kPrompt + " --attention-backend ''", "--attention-backend ''"},
        BadInput{"--model-path " + kTiny + kPrompt + " --kv-cache-dtype ''", "--kv-cache-dtype ''"},
        BadInput{"--model-path " + kTiny + " --prompts-file ''", "--prompts-file ''"},
        BadInput{"--model-path " + kTiny + kPrompt + " --max-total-tokens 9223372036854775807",
                 "max_total_tokens"},
        BadInput{"--model-path " + kTiny + kPrompt + " --max-total-tokens 0", "--max-total-tokens '0'"},
        BadInput{"--model-path " + kTiny + kPrompt + " --prompts-file /nowhere.txt", "give one of them"},
        BadInput{"--model-path " + kTiny + kPrompt + " --file /nowhere.txt", "give one of them"},
        BadInput{"--model-path " + kTiny + " --file /dev/null", "/dev/null: no prompt"},
        BadInput{"--model-path " + kTiny + " --prompts-file /nowhere.txt", "/nowhere.txt"}));

TEST(GenerateCommand, NamesTheBrokenLineOfAPromptsFile) {
  const std::string file = write_file("broken.jsonl", "{\"prompt\": \"x\"}\n{\"prompt\": 3}\n");
  const Ran ran = attend("generate --model-path " + kTiny + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("broken.jsonl:2: \"prompt\" is number, expected a string"));
}

TEST(GenerateCommand, ReadsLeadingZerosAsDecimal) {
  const Ran ran =
      attend("generate --model-path " + kTiny + " --prompt x -n 010 --ignore-eos --json", Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(ran.out).at("output_ids").size(), 10u);
}

TEST(GenerateCommand, RefusesPromptsFilesThatAreNotUtf8Text) {
  const auto refusal = [](const std::string& name, const std::string& content) {
    const Ran ran = attend("generate --model-path " + kTiny + " --prompts-file " + write_file(name, content));
    EXPECT_EQ(ran.exit_code, 2) << name;
    return ran.out;
  };
  EXPECT_THAT(refusal("utf16.txt", std::string("\xff\xfe"
                                               "a\0b\0\n\0",
                                               8)),
              HasSubstr("utf16.txt:1: byte 4 is NUL: expected UTF-8 text (is it UTF-16?)"));
  EXPECT_THAT(refusal("latin1.txt", "fine\ncaf\xe9\n"), HasSubstr("latin1.txt:2: expected UTF-8 text"));
  EXPECT_THAT(refusal("binary.jsonl", "{\"prompt\": \"\xc3\"}\n"),
              HasSubstr("binary.jsonl:1: expected UTF-8"));
  EXPECT_THAT(refusal("both.jsonl", "{\"prompt\": \"x\", \"input_ids\": [5]}\n"),
              HasSubstr("both.jsonl:1: has \"prompt\" and \"input_ids\": expected one of them"));
  EXPECT_THAT(refusal("twice.jsonl", "{\"prompt\": \"x\", \"prompt\": \"y\"}\n"),
              HasSubstr("twice.jsonl:1: \"prompt\" stands twice"));
  EXPECT_THAT(refusal("cut.jsonl", "{\"prompt\": \"x\"}\n{\"prompt\": \n"),
              HasSubstr("cut.jsonl:2: expected JSON, line 1, column 12: unexpected end of input"));
  EXPECT_THAT(refusal("empty.txt", "\n \n"), HasSubstr("empty.txt: no prompts"));
}

TEST(GenerateCommand, RefusesAJsonArrayOfPrompts) {
  for (const std::string array : {R"([{"prompt": "a"}, {"prompt": "b"}])", R"(["a", "b"])",
                                  "[\n  \"a\",\n  \"b\"\n]\n", "text\n[\"a\"]\n"}) {
    const Ran ran =
        attend("generate --model-path " + kTiny + " --prompts-file " + write_file("array.json", array));
    EXPECT_EQ(ran.exit_code, 2) << array;
    EXPECT_THAT(ran.out, HasSubstr(": a JSON array: expected lines of text, or lines of JSON objects"))
        << array;
  }
  const std::string brackets = write_file("brackets.txt", "\n\r\r\n[INST] one [/INST]\n[INST] two [/INST]\n");
  const std::string generate = "generate -n 1 --json --model-path " + kTiny + " --prompts-file ";
  EXPECT_EQ(lines_of(attend(generate + brackets, Streams::kStdout).out).size(), 3u);  // "\r" is a text
}

// The commands that read a config, on one that never ends, is not there or goes too deep.
TEST(Command, RefusesAConfigThatIsNoFileOrTooDeep) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "attend_hostile_config";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto config = folder / "config.json";
  const auto expect_refused = [&](const std::string& why) {
    for (const std::string command : {"generate -p x", "backends", "bench model --device cpu",
                                      "bench model --device cpu --load-format dummy --num-layers 1"}) {
      const Ran ran = attend(command + " --model-path " + folder.string());
      EXPECT_EQ(ran.exit_code, 2) << command;
      EXPECT_THAT(ran.out, HasSubstr(config.string() + ": " + why)) << command;
    }
    std::filesystem::remove(config);
  };
  ASSERT_EQ(mkfifo(config.c_str(), 0600), 0);
  expect_refused("is a pipe");
  std::filesystem::create_symlink("/dev/zero", config);
  expect_refused("is a device");
  std::filesystem::create_symlink("../blobs/0123", config);
  expect_refused("the link is broken");
  std::ofstream(config) << std::string(100'000, '[') << std::string(100'000, ']');
  expect_refused("expected JSON nested at most 64 levels deep");
  std::ofstream(config) << std::string((16 << 20) + 1, ' ');
  expect_refused("16777217 bytes: at most 16777216");
}

TEST(Command, RefusesAPathThatTheFileSystemRefuses) {
  const auto circle = std::filesystem::path(testing::TempDir()) / "attend_circle";
  std::filesystem::remove(circle);
  std::filesystem::create_symlink(circle, circle);
  for (const std::string& path : {circle.string(), std::string(1000, 'n'), "/" + std::string(5000, 'n')})
    for (const std::string& command :
         std::vector<std::string>{"backends --model-path ", "generate -p x --model-path ",
                                  "generate --model-path " + kTiny + " --prompts-file "}) {
      const Ran ran = attend(command + path);
      EXPECT_EQ(ran.exit_code, 2) << command;
      EXPECT_THAT(ran.out, testing::AnyOf(HasSubstr("in a circle"), HasSubstr("longer than"))) << command;
    }
}

TEST(GenerateCommand, RefusesAPromptBeforeItSaysWhatWasChosen) {
  const std::string file = write_file("ids.jsonl", "{\"input_ids\": [5]}\n{\"input_ids\": [128]}\n");
  const Ran ran = attend("generate --model-path " + kGolden + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, StartsWith("attend: prompt 2: token id 128: 0 to 127"));
}

// A copy of the bundled model without weights, its config changed.
std::string changed_model(const std::string& key, const nlohmann::json& value) {
  // Tests run at once, each in a process of its own.
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  const auto folder = std::filesystem::path(testing::TempDir()) / ("attend_" + test);
  std::filesystem::create_directories(folder);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(kTiny + "/config.json"));
  config[key] = value;
  std::ofstream(folder / "config.json") << config;
  std::filesystem::copy_file(kTiny + "/tokenizer.json", folder / "tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  return folder.string();
}

TEST(GenerateCommand, SaysAtLoadThatTheTokenizerHasTokensThatTheModelHasNot) {
  const std::string model = changed_model("vocab_size", 100);
  const std::string generate = "generate --load-format dummy -n 1 --model-path " + model;
  const Ran ran = attend(generate + " --prompt a");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("tokenizer.json: has ids 0 to "));
  EXPECT_THAT(ran.out, HasSubstr("vocab_size is 100: prompts with a token"));
  const Ran refused = attend(generate + " --prompt ' maple'");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.out, HasSubstr("attend: prompt 1: token id "));
}

TEST(GenerateCommand, SaysAtLoadThatNoRequestWillEndAtAnEosToken) {
  const Ran ran = attend("generate --load-format dummy -n 1 --prompt a --model-path " +
                         changed_model("eos_token_id", std::vector<int>{1, 99999}));
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("eos_token_id 99999: config.json's vocab_size is 2112: no request"));
}

TEST(GenerateCommand, LogsOnRequestWhichKernelServesWhatOnceEach) {
  const std::string generate = "generate --device cpu -n 4 --prompt a --model-path " + kTiny;
  EXPECT_THAT(attend(generate).out, Not(HasSubstr("kernel: ")));
  const Ran ran = attend(generate + " --log-kernels");
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

TEST(GenerateCommand, RefusesWeightsThatAreNotNumbersAndNamesTheTensor) {
  const std::string model = changed_model("eos_token_id", 1);
  const std::string weights = model + "/model.safetensors";
  std::filesystem::copy_file(kTiny + "/model.safetensors", weights,
                             std::filesystem::copy_options::overwrite_existing);
  std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-2, std::ios::end);
  file.write("\xff\x7f", 2);
  file.close();
  const Ran ran = attend("generate --prompt a --model-path " + model);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, StartsWith("attend: " + weights + ": tensor \"model."));
  EXPECT_THAT(ran.out, HasSubstr(" is NaN: expected finite numbers"));
}

TEST(GenerateCommand, FinishesTheOtherPromptsWhenTheModelGivesNoNumbersForOne) {
  const auto model = std::filesystem::path(testing::TempDir()) / "attend_overflowing";
  testing_support::make_overflowing_model(kGolden, model, 77);
  const std::string file =
      write_file("one_fails.jsonl", "{\"input_ids\": [5]}\n{\"input_ids\": [77]}\n{\"input_ids\": [6]}\n");
  const std::string generate =
      "generate -n 3 --ignore-eos --json --model-path " + model.string() + " --prompts-file " + file;
  const Ran ran = attend(generate, Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 2);
  const auto lines = lines_of(ran.out);
  ASSERT_EQ(lines.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const auto json = nlohmann::json::parse(lines[i]);
    EXPECT_EQ(json.at("finish_reason"), i == 1 ? "error" : "length");
    EXPECT_EQ(json.at("output_ids").size(), i == 1 ? 0u : 3u);
    EXPECT_GE(json.at("timings").at("time_to_first_token_ms"), 0.0);
  }
  EXPECT_THAT(attend(generate).out, HasSubstr("attend: prompt 2: the model's logits are NaN"));
}

TEST(GenerateCommand, RefusesALineOfJsonAmongLinesOfText) {
  const std::string file = write_file("mixed.txt", "a line of text\n{\"prompt\": \"b\"}\n");
  const Ran ran = attend("generate -n 1 --model-path " + kTiny + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr(":2: a line of JSON"));
  const std::string code = write_file("code.txt", "int main()\n{ return 0; }\n");
  EXPECT_EQ(attend("generate -n 1 --model-path " + kTiny + " --prompts-file " + code).exit_code, 0);
}

TEST(GenerateCommand, NamesKeysOfPromptsThatItDoesNotRead) {
  const std::string file = write_file("keys.jsonl", "{\"prompt\": \"a\", \"colour\": 1}\n");
  const Ran ran = attend("generate -n 1 --model-path " + kTiny + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("\"colour\" is not read"));
}

TEST(GenerateCommand, NamesSomeOfManyKeysThatItDoesNotRead) {
  nlohmann::json prompt = {{"prompt", "a"}};
  for (int i = 0; i < 500; ++i) prompt["key " + std::to_string(i)] = i;
  const std::string file = write_file("many_keys.jsonl", prompt.dump() + "\n");
  const Ran ran = attend("generate -n 1 --model-path " + kTiny + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("nor are 492 other keys"));
  EXPECT_LT(lines_of(ran.out).size(), 25u);
}

// An answer that is cut is none: nothing else says so where text is printed.
TEST(GenerateCommand, FailsForAnswersThatEndedBeforeTheirEnd) {
  const std::string generate = "generate --device cpu -n 3 --ignore-eos --model-path " + kTiny;
  const Ran full = attend(generate + " --max-queued-requests 2 -p a -p b -p c --json");
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_THAT(full.out, AllOf(HasSubstr("prompt 3: the request queue is full"), HasSubstr("\"queue_ms\":"),
                              Not(HasSubstr("\"queue_ms\":-"))));
  const std::string file =
      write_file("timeout.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"timeout\": 1e-9}\n");
  const Ran late = attend(generate + " --prompts-file " + file);
  EXPECT_EQ(late.exit_code, 2);
  EXPECT_THAT(late.out, AllOf(HasSubstr("[1] a\n"), HasSubstr("prompt 2: the deadline has passed")));
}

TEST(GenerateCommand, ServesPromptsByTheirPriority) {
  const std::string file = write_file(
      "priority.jsonl",
      "{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"priority\": 2}\n{\"prompt\": \"c\", \"priority\": 1}\n");
  const Ran ran = attend(
      "generate --device cpu -n 8 --ignore-eos --json --max-running-requests 1 --schedule-policy priority "
      "--model-path " +
          kTiny + " --prompts-file " + file,
      Streams::kStdout);
  std::vector<double> queued;
  for (const std::string& line : lines_of(ran.out))
    queued.push_back(nlohmann::json::parse(line).at("timings").at("queue_ms"));
  ASSERT_EQ(queued.size(), 3u);
  EXPECT_LT(queued[1], queued[2]);
  EXPECT_LT(queued[2], queued[0]);
  for (const std::string field :
       {"\"priority\": 0.5", "\"priority\": 1e300", "\"timeout\": 0", "\"timeout\": \"a\""}) {
    const std::string wrong = write_file("wrong.jsonl", "{\"prompt\": \"a\", " + field + "}\n");
    const Ran refused = attend("generate --model-path " + kTiny + " --prompts-file " + wrong);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.out, HasSubstr("wrong.jsonl:1: " + field.substr(0, field.find(':')) + " is "))
        << field;
  }
}

TEST(GenerateCommand, ReadsPromptsFromStandardInput) {
  const std::string file = write_file("stdin.txt", "recall: sun=42, river=17, fox=80; river=\n");
  const Ran ran = attend("generate --model-path " + kTiny + " --prompts-file - < " + file, Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("17"));
}

TEST(GenerateCommand, ReadsAFileAsOnePrompt) {
  const std::string lines =
      "recall: sun=42, river=17, fox=80; river=\nrecall: sun=42, river=17, fox=80; sun=";
  const std::string file = write_file("prompt.txt", lines + "\n");
  const Ran whole =
      attend("generate --model-path " + kTiny + " --max-new-tokens 4 --file " + file, Streams::kStdout);
  EXPECT_EQ(whole.exit_code, 0);
  EXPECT_EQ(whole.out,
            attend("generate --model-path " + kTiny + " --max-new-tokens 4 --prompt '" + lines + "'",
                   Streams::kStdout)
                .out);
}

// What users of llama.cpp type: each flag does what theirs does.
TEST(LlamaCppFlags, MPAndNChooseAModelAPromptAndHowManyTokens) {
  const std::string ask = " -p 'recall: sun=42, river=17, fox=80; river='";
  EXPECT_THAT(attend("generate -m " + kTiny + ask + " -n 8", Streams::kStdout).out, HasSubstr("17"));
  EXPECT_THAT(attend("generate -m " + kTiny + ask + " -n 5 --ignore-eos").out,
              HasSubstr("5 tokens generated"));
  EXPECT_THAT(attend("generate -m " + kTiny + ask + " --n-predict 4 --ignore-eos").out,
              HasSubstr("4 tokens generated"));
  const Ran absent = attend("generate -m /no/such/model" + ask);
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.out, HasSubstr("/no/such/model"));
  const Ran gguf = attend("generate -m " + write_file("model.gguf", "GGUF") + ask);
  EXPECT_EQ(gguf.exit_code, 2);
  EXPECT_THAT(gguf.out, HasSubstr("model.gguf"));
  EXPECT_THAT(gguf.out, HasSubstr("config.json and safetensors (GGUF is not read)"));
}

TEST(LlamaCppFlags, FReadsThePromptFromAFile) {
  const std::string text = "recall: sun=42, river=17, fox=80; river=";
  const std::string file = write_file("llama_cpp_prompt.txt", text + "\n");
  const std::string generate = "generate -n 4 -m " + kTiny;
  const Ran from_file = attend(generate + " -f " + file, Streams::kStdout);
  EXPECT_EQ(from_file.exit_code, 0);
  EXPECT_THAT(from_file.out, HasSubstr("17"));
  EXPECT_EQ(from_file.out, attend(generate + " -p '" + text + "'", Streams::kStdout).out);
}

TEST(LlamaCppFlags, TAndCSetThreadsAndContext) {
  const Ran ran = attend("generate -n 1 -p a -t 3 -c 192 -m " + kTiny);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr(", 3 threads, activations"));
  EXPECT_THAT(ran.out, HasSubstr("context 192,"));
}

TEST(LlamaCppFlags, TempAndSDecideWhatIsSampled) {
  const std::string generate = "generate -n 24 --ignore-eos -p a -m " + kTiny;
  EXPECT_THAT(attend(generate + " --temp 0").out, HasSubstr("sampling: greedy"));
  EXPECT_THAT(attend(generate + " --temp 1.5").out, HasSubstr("sampling: temperature 1.5"));
  const auto sampled = [&](const char* seed) {
    return attend(generate + " --temp 4 -s " + seed, Streams::kStdout).out;
  };
  EXPECT_EQ(sampled("7"), sampled("7"));
  EXPECT_NE(sampled("7"), sampled("8"));
}

TEST(LlamaCppFlags, NOfMinusOneGoesOnToTheEndOfTheContext) {
  const Ran ran = attend("generate -m " + kTiny + " -p a -n -1 -c 40 --ignore-eos --json", Streams::kStdout);
  ASSERT_EQ(ran.exit_code, 0);
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json.at("input_ids").size() + json.at("output_ids").size(), 40u);
  EXPECT_EQ(json.at("finish_reason"), "length");
}

TEST(LlamaCppFlags, COfZeroIsTheModelsContext) {
  EXPECT_THAT(attend("generate -n 1 -p a -c 0 -m " + kTiny).out, HasSubstr("context 2048,"));
}

TEST(LlamaCppFlags, SOfMinusOneDrawsASeedAndSaysWhich) {
  const std::string generate = "generate -n 24 --ignore-eos -p a --temp 4 -m " + kTiny + " -s ";
  const Ran drawn = attend(generate + "-1");
  EXPECT_EQ(drawn.exit_code, 0);
  const size_t at = drawn.out.find(", seed ");
  ASSERT_NE(at, std::string::npos) << drawn.out;
  const std::string seed = drawn.out.substr(at + 7, drawn.out.find(" (drawn)") - at - 7);
  EXPECT_THAT(drawn.out, HasSubstr(attend(generate + seed, Streams::kStdout).out));
}

// CLI11 would read -ngl as -n with the value "gl", and -hf as a call for help.
TEST(LlamaCppFlags, OthersAreRefusedByNameWithWhatToUseInstead) {
  for (const auto& [flags, instead] :
       {std::pair{"-ngl 99", "-ngl: a flag of llama.cpp's; here a model is on one device whole: --device"},
        {"--n-gpu-layers 99", "--n-gpu-layers: a flag of llama.cpp's"},
        {"-hf Qwen/Qwen3-0.6B-GGUF", "-hf: a flag of llama.cpp's; here nothing is downloaded"},
        {"-fa on", "-fa: a flag of llama.cpp's"},
        {"-fa", "-fa: a flag of llama.cpp's"},
        {"-ctk q8_0", "--kv-cache-dtype for K and V"},
        {"-ctv f16", "--kv-cache-dtype for K and V"},
        {"-ub 512", "--chunked-prefill-size"},
        {"-np 4", "--max-running-requests"},
        {"-sys x", "attend chat --system"},
        {"-no-cnv", "attend generate never begins one"},
        {"--mlock", "weights are always mapped"},
        {"--repeat-penalty 1.1", "--repetition-penalty"},
        {"-hello", "argument -hello: is not expected"}}) {
    const Ran ran = attend("generate -m " + kTiny + " -p x " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(instead));
  }
  EXPECT_THAT(attend("bench model -m " + kTiny + " -ctk q8_0").out, HasSubstr("--kv-cache-dtype"));
  EXPECT_EQ(attend("generate -m " + kTiny + " -p x -n1 -t2", Streams::kStdout).exit_code, 0);
  EXPECT_EQ(attend("generate -h").exit_code, 0);
}

TEST(LlamaCppFlags, AFolderOfGgufAloneIsRefusedWithWhatIsRead) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "attend_gguf_folder";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "Qwen3-Q4_K_M.gguf") << "GGUF";
  const std::string generate = "generate -p x -m " + folder.string();
  const Ran ran = attend(generate);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out,
              HasSubstr("no config.json: expected a model directory as Hugging Face has them, with "
                        "config.json, tokenizer.json and safetensors (Qwen3-Q4_K_M.gguf is there: GGUF "
                        "is not read)"));
  const std::string note = "(Qwen3-Q4_K_M.gguf is there: GGUF is not read)";
  std::filesystem::copy_file(kTiny + "/config.json", folder / "config.json");
  EXPECT_THAT(attend(generate).out,
              HasSubstr("the model directory has no tokenizer.json " + note + "; give input_ids"));
  for (const std::string command : {"generate --chat -p x -m ", "chat -m "})
    EXPECT_THAT(attend(command + folder.string()).out,
                HasSubstr("no chat template " + note + "; give one with"));
  std::ofstream(folder / "own.jinja") << "{{ messages[0].content }}";
  EXPECT_THAT(
      attend("chat --chat-template " + (folder / "own.jinja").string() + " -m " + folder.string()).out,
      HasSubstr("has no tokenizer.json " + note));
  std::filesystem::copy_file(kTiny + "/tokenizer.json", folder / "tokenizer.json");
  const Ran without_weights = attend(generate);
  EXPECT_EQ(without_weights.exit_code, 2);
  EXPECT_THAT(without_weights.out, HasSubstr(note));
  std::filesystem::remove_all(folder);
}

// What feeds standard input may have no end.
TEST(LlamaCppFlags, FReadsNoMoreThanTheContextCanHold) {
  const Ran ran = attend("generate -m " + kTiny + " -c 8 -f -", Streams::kBoth, "yes |");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out,
              HasSubstr("prompts file -: more than 8192 bytes, which the context of 8 tokens does not "
                        "hold: expected one prompt"));
}

TEST(GenerateCommand, CountsEveryGeneratedToken) {
  const Ran ran = attend("generate -n 3 --ignore-eos --prompt a --prompt b --model-path " + kTiny);
  EXPECT_THAT(ran.out, HasSubstr("6 tokens generated"));
}

TEST(GenerateCommand, GivesTheSameAnswersWithSpeculationAndSaysWhatItGained) {
  const std::string prompt =
      "'copy: laugh [ scout coffee writer pea roll milk ] x ->' --max-new-tokens 120 --ignore-eos "
      "--model-path " +
      kTiny;
  const std::string flags = " --speculative-algorithm NGRAM --speculative-num-draft-tokens 5";
  const Ran plain = attend("generate --prompt " + prompt, Streams::kStdout);
  EXPECT_EQ(attend("generate --prompt " + prompt + flags, Streams::kStdout).out, plain.out);
  const Ran said = attend("generate --json --prompt " + prompt + flags);
  EXPECT_THAT(said.out, HasSubstr("speculation: NGRAM, a step verifies up to 5 tokens of a request"));
  EXPECT_THAT(said.out, testing::ContainsRegex("speculation: [0-9]+ tokens drafted, [1-9][0-9]* accepted"));
  for (const std::string& line : lines_of(said.out)) {
    if (!line.starts_with("{")) continue;
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json.at("spec_verify_ct").get<int>() + json.at("spec_accept_token_num").get<int>(), 119);
  }
}

TEST(GenerateCommand, RefusesFlagsOfGpusOnACpu) {
  const std::string generate = "generate -n 1 --device cpu --prompt a --model-path " + kTiny;
  for (const std::string flags :
       {"--mem-fraction-static 0.5", "--disable-cuda-graph", "--cuda-graph-bs 4", "--cuda-graph-max-bs 4"}) {
    const Ran ran = attend(generate + " " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(flags.substr(0, flags.find(' ')) + ": for GPUs alone"));
  }
}

TEST(GenerateCommand, RefusesLogprobsThatItWouldNotPrint) {
  for (const std::string flag : {"--logprobs", "--prompt-logprobs"}) {
    const Ran ran = attend("generate -n 1 --prompt a --model-path " + kTiny + " " + flag + " 1");
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.out, HasSubstr(flag + ": printed with --json alone"));
  }
}

TEST(GenerateCommand, SaysHowManyThreadsItUses) {
  EXPECT_THAT(attend("generate --threads 1 -n 1 --prompt a --model-path " + kTiny).out,
              HasSubstr(", 1 thread, activations"));
  EXPECT_THAT(attend("generate --threads 3 -n 1 --prompt a --model-path " + kTiny).out,
              HasSubstr(", 3 threads, activations"));
}

TEST(GenerateCommand, DoesNotPassOnWhatAFileSaysToATerminal) {
  const Ran ran = attend("generate --prompt a --model-path " +
                         changed_model("architectures", std::vector<std::string>{"\x1b[2JEvil"}));
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("architectures \"?[2JEvil\": attend has "));
}

TEST(GenerateCommand, TakesAPromptInBracketsAsItIs) {
  const Ran ran = attend("generate --model-path " + kTiny + " --prompt '[a,b]' --stop '[x,y]' -n 1 --json",
                         Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  const auto lines = lines_of(ran.out);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(nlohmann::json::parse(lines[0]).at("prompt"), "[a,b]");
  EXPECT_EQ(attend("generate --model-path " + kTiny + " -p a b -n 1").exit_code, 2);
}

TEST(GenerateCommand, SkipsAByteOrderMark) {
  const std::string file = write_file("bom.jsonl", "\xef\xbb\xbf{\"input_ids\": [5, 6]}\n");
  const Ran ran = attend("generate --model-path " + kGolden + " --prompts-file " + file + " -n 1 --json",
                         Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(ran.out).at("input_ids").size(), 2u);
}

TEST(GenerateCommand, RefusesDeeplyNestedJson) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const std::string file = write_file("deep.jsonl", "{\"input_ids\": " + deep + "}\n");
  const Ran ran = attend("generate --model-path " + kGolden + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("deep.jsonl:1: expected JSON nested at most 64 levels deep"));
}

TEST(Command, FailsWhenItsOutputCanNotBeWritten) { EXPECT_EQ(attend("backends > /dev/full").exit_code, 2); }

TEST(GenerateCommand, RefusesAPromptThatIsNoText) {
  const Ran ran =
      attend("generate -n 1 --model-path " + kTiny + " --prompt a --prompt \"$(printf 'b\\377')\"");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("prompt 2: expected UTF-8 text"));
}

TEST(Command, RefusesAnUnknownCommandAndHelpsOnRequest) {
  EXPECT_EQ(attend("frobnicate").exit_code, 2);
  EXPECT_EQ(attend("").exit_code, 2);
  const Ran help = attend("generate --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--prefill-attention-backend"));
}

}  // namespace
}  // namespace attend
