// Hostile input and environments of the commands: closed streams, misplaced flags, memory limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"
#include "tests/support/overflowing_model.h"

namespace attend {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace testing_support;

const std::string kGenerate = "generate --device cpu --model-path " + kTinyModel;

void expect_rejected(const std::string& arguments, const std::string& message) {
  const CommandResult ran = attend(arguments);
  EXPECT_EQ(ran.exit_code, 2) << arguments;
  EXPECT_THAT(ran.out, HasSubstr(message)) << arguments;
}

// Runs the command in a new terminal and returns the terminal's output.
std::string on_a_terminal(const std::string& command, const std::string& environment = "") {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", (environment + " " ATTEND_BINARY " " + command).c_str(), nullptr);
    _exit(127);
  }
  std::string out;
  std::array<char, 4096> part;
  for (ssize_t got; (got = read(terminal, part.data(), part.size())) > 0;)
    out.append(part.data(), static_cast<size_t>(got));
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0) << out;
  close(terminal);
  return out;
}

TEST(Command, ListsCommands) {
  expect_rejected("modl", "command modl: expected one of generate, ");
  expect_rejected("generat -p x", "(generate?)");
  expect_rejected("bench modell", "command modell: expected one of attention, model, serving (model?)");
  expect_rejected("", "no command: expected one of generate, ");
  expect_rejected("bench", "no command: expected one of attention, model");
  expect_rejected("-m x -p y", "no command before -m: expected one of generate, ");
  expect_rejected("-hf x", "-hf: a flag of llama.cpp; in attend: nothing is downloaded");
}

TEST(Command, NamesTheFirstUnexpectedArguments) {
  expect_rejected(kGenerate + " first second", "arguments first, second: are not expected");
  const CommandResult ran = attend(kGenerate + " a b c d e f g " + std::string(40'000, 'x'));
  EXPECT_THAT(ran.out, HasSubstr("arguments a, b, c, d, e and 3 more: are not expected"));
  EXPECT_LT(attend("generate " + std::string(40'000, 'x')).out.size(), 300u);
  EXPECT_LT(attend(kGenerate + " -p x --threads " + std::string(40'000, 'x')).out.size(), 300u);
}

TEST(Command, DoesNotParseAFlagAsAValue) {
  expect_rejected(kGenerate + " --prompt --json", "--prompt: expected a value, but --json is a flag");
  expect_rejected(kGenerate + " -p -n 3", "-p: expected a value, but -n is a flag");
  const CommandResult ran = attend(kGenerate + " -n 1 --json --prompt=--json", Streams::kStdout);
  ASSERT_EQ(ran.exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(ran.out).at("prompt"), "--json");
}

TEST(Command, ReportsAcceptedNumbersAndDtypes) {
  expect_rejected(kGenerate + " -p x --threads abc", "--threads 'abc': expected an integer from 1 to 1024");
  expect_rejected(kGenerate + " -p x --page-size 512",
                  "--page-size '512': expected an integer from 1 to 256");
  expect_rejected(kGenerate + " -p x --dtype int4", "--dtype 'int4': expected auto or float32");
  expect_rejected(kGenerate + " -p x --kv-cache-dtype int4",
                  "--kv-cache-dtype 'int4': expected auto, float32, ");
}

TEST(Command, AcceptsFp8NamesOfSglang) {
  const CommandResult ran = attend(kGenerate + " -p x -n 1 --kv-cache-dtype fp8");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr(", fp8_e4m3, "));
}

TEST(Command, AcceptsFp8DsMlaOfVllmForMlaOnly) {
  expect_rejected(kGenerate + " -p x --kv-cache-dtype fp8_ds_mla",
                  "kv_cache_dtype fp8_ds_mla: cpu supports float32, float16, bfloat16, fp8_e4m3, fp8_e5m2");
  expect_rejected(kGenerate + " -p x --kv-cache-dtype uint8",
                  "--kv-cache-dtype 'uint8': expected auto, float32, ");
  const CommandResult ran =
      attend("backends --device cpu --kv-cache-dtype fp8_ds_mla --model-path " ATTEND_SOURCE_DIR
             "/tests/goldens/deepseek-v3");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("cpu            chosen for prefill; chosen for decode"),
                             HasSubstr("kv_cache_dtype fp8_ds_mla: flashinfer supports float32")));
}

TEST(Command, HonorsLogLevel) {
  const std::string command = kGenerate + " -p x -n 1 --attention-backend torch_native";
  EXPECT_THAT(attend(command).out,
              AllOf(HasSubstr("info: KV pool"), HasSubstr("warning: attention backend torch_native")));
  EXPECT_THAT(attend(command + " --log-level warning").out,
              AllOf(Not(HasSubstr("info: ")), HasSubstr("warning: attention backend torch_native")));
  EXPECT_THAT(attend(command + " --log-level error").out, Not(HasSubstr("warning: ")));
  expect_rejected(command + " --log-level loud",
                  "--log-level 'loud': expected debug, info, warning or error");
}

TEST(Command, FailsWhenStdoutIsClosed) {
  for (const std::string command : {"--version", "--help", "generate --help", "backends"}) {
    EXPECT_EQ(attend(command + " > /dev/full").exit_code, 2) << command;
    EXPECT_THAT(attend(command + " 2>&1 > /dev/full", Streams::kStdout).out, testing::IsEmpty());
  }
  EXPECT_EQ(attend(kGenerate + " -p x >&-").exit_code, 2);
  EXPECT_EQ(attend(kGenerate + " -p x -n 1 --log-level error 2>&-").exit_code, 0);
}

// Stops after the first answer instead of computing all answers.
TEST(GenerateCommand, StopsIfItsOutputCannotBeWritten) {
  std::string prompts;
  for (int i = 0; i < 64; ++i) prompts += "recall: oak=" + std::to_string(i) + "; oak=\n";
  const std::string file = write_file("many_prompts.txt", prompts);
  for (const std::string format : {"", " --json"}) {
    const CommandResult ran =
        attend(kGenerate + " --max-running-requests 1 --prompts-file " + file + format + " > /dev/full");
    EXPECT_EQ(ran.exit_code, 2);
  }
  const CommandResult ran =
      attend(kGenerate + " --prompts-file " + file + " 2>&1 > /dev/full", Streams::kStdout);
  EXPECT_THAT(ran.out, Not(HasSubstr("tokens generated")));
}

TEST(GenerateCommand, PrintsNothingForAnEmptyCompletionOfIds) {
  const nlohmann::json prompt = {{"prompt", "copy: laugh [ scout ] roll ->"}};
  const std::string text = write_file("as_text.jsonl", prompt.dump() + "\n");
  const std::string stop = " --stop ' ' --max-new-tokens 8 ";  // stops immediately
  const CommandResult as_text = attend(kGenerate + stop + "--json --prompts-file " + text, Streams::kStdout);
  const auto json = nlohmann::json::parse(as_text.out);
  ASSERT_EQ(json.at("text"), "");
  const nlohmann::json ids = {{"input_ids", json.at("input_ids")}, {"answer", "17"}};
  const std::string file = write_file("as_ids.jsonl", ids.dump() + "\n");
  const std::string generate = kGenerate + stop + "--prompts-file " + file;
  EXPECT_EQ(attend(generate, Streams::kStdout).out, "\n");
  EXPECT_THAT(attend(generate + " --show-prompts", Streams::kStdout).out,
              testing::EndsWith("\n    =>    (wrong: expected 17)\nanswers: 0 of 1 right\n"));
}

TEST(GenerateCommand, RejectsAPromptBeforeLoadingWeights) {
  const auto model = std::filesystem::path(testing::TempDir()) / "attend_without_weights";
  std::filesystem::create_directories(model);
  std::filesystem::copy_file(kTinyModel + "/config.json", model / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  const std::string generate = "generate --device cpu --model-path " + model.string() + " -p ";
  expect_rejected(generate + "x", "prompt 1: prompt text: the model directory has no tokenizer.json");
  std::filesystem::copy_file(kTinyModel + "/tokenizer.json", model / "tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  expect_rejected(generate + std::string(20'000, 'a'), "the context holds 2048 tokens");
  expect_rejected(generate + "x", "weights: expected model.safetensors");
  std::filesystem::remove_all(model);
}

TEST(GenerateCommand, DetectsModifiedWeightsAtTheNextAnswer) {
  const auto model = std::filesystem::path(testing::TempDir()) / "attend_overwritten";
  std::filesystem::copy(
      kTinyModel, model,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  std::string prompts;
  for (int i = 0; i < 400; ++i) prompts += "recall: oak=" + std::to_string(i) + "; oak=\n";
  const std::string file = write_file("long_batch.txt", prompts);
  // Touches the weights after the first answer and continues to read.
  const CommandResult ran =
      attend("generate --device cpu --ignore-eos -n 64 --max-running-requests 1 --model-path " +
                 model.string() + " --prompts-file " + file + " --json | (head -n 1; touch " +
                 (model / "model.safetensors").string() + "; wc -l)",
             Streams::kStdout);
  const auto lines = split_lines(ran.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_LT(std::stoi(lines[1]), 390);
  std::filesystem::remove_all(model);
}

TEST(BenchCommand, RejectsAnUnwritableFileBeforeMeasuring) {
  const auto circle = std::filesystem::path(testing::TempDir()) / "attend_circle.json";
  std::filesystem::remove(circle);
  std::filesystem::create_symlink(circle, circle);
  for (const std::string& file : {std::string("/nowhere/figures.json"), std::string("/"), circle.string()}) {
    const CommandResult ran =
        attend("bench model --device cpu --model-path " + kTinyModel + " --json " + file);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.out, AllOf(StartsWith("attend: --json " + file), Not(HasSubstr("tg128"))));
  }
}

TEST(GenerateCommand, ReportsTemplateFileErrors) {
  const auto link = std::filesystem::path(testing::TempDir()) / "attend_template.jinja";
  std::filesystem::remove(link);
  std::filesystem::create_symlink("nowhere", link);
  const std::string chat = kGenerate + " -p x --chat --chat-template ";
  expect_rejected(chat + link.string(), "the link is broken");
  expect_rejected(chat + testing::TempDir(), "is a directory");
  expect_rejected(chat + "/nowhere", "no such file");
}

TEST(Command, HonorsMemoryLimits) {
  // The shadow memory of a sanitizer needs more address space than this limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const CommandResult ran =
      attend(kGenerate + " -p x --threads 1 --max-total-tokens 2000000", Streams::kBoth, "ulimit -v 600000;");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("KV pool of 2000000 tokens"), HasSubstr("(0."),
                             HasSubstr("lower --max-total-tokens")));
#endif
}

TEST(GenerateCommand, WarnsAboutFp8Saturation) {
  const auto model = std::filesystem::path(testing::TempDir()) / "attend_beyond_fp8";
  std::filesystem::create_directories(model);
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(kGolden + "/" + name, model / name,
                               std::filesystem::copy_options::overwrite_existing);
  const std::string prompt = write_file("fp8_ids.jsonl", "{\"input_ids\": [5, 6, 7]}\n");
  const std::string generate = "generate --device cpu -n 2 --kv-cache-dtype fp8 --prompts-file " + prompt +
                               " --model-path " + model.string();
  EXPECT_THAT(attend(generate).out, Not(HasSubstr("was cut")));
  testing_support::change_weights(model / "model.safetensors",
                                  [](const std::string& name, int64_t, int64_t, float& value) {
                                    if (name == "model.layers.0.self_attn.v_proj.weight") value *= 1e6f;
                                  });
  const CommandResult ran = attend(generate);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("warning: K/V in fp8_e4m3: "));
  std::filesystem::remove_all(model);
}

TEST(GenerateCommand, EscapesControlSequencesOnATerminal) {
  const std::string prompts = kGenerate + " -n 1 --log-level error -p \"$(printf '\\033[31mred')\" -p b";
  EXPECT_THAT(on_a_terminal(prompts, "TERM=dumb"), AllOf(HasSubstr("[1] ?[31mred"), Not(HasSubstr("\033"))));
}

TEST(Command, HonorsNoColor) {
  const std::string command = kGenerate + " -n 1 -p a";
  EXPECT_THAT(on_a_terminal(command, "TERM=xterm"),
              AllOf(HasSubstr("\033[32minfo"), HasSubstr("loading weights [")));
  EXPECT_THAT(on_a_terminal(command, "TERM=xterm NO_COLOR=1"), Not(HasSubstr("\033[32m")));
  EXPECT_THAT(on_a_terminal(command, "TERM=dumb COLORTERM=1"), Not(HasSubstr("\033")));
}

TEST(GenerateCommand, ShowsProgressOfALongPrompt) {
  const std::string prompt = "\"$(printf 'a%.0s' $(seq 1500))\"";
  EXPECT_THAT(on_a_terminal(kGenerate + " -n 1 --chunked-prefill-size 512 -p " + prompt, "TERM=xterm"),
              AllOf(HasSubstr("reading prompts ["), HasSubstr("% of 1501 tokens")));
}

}  // namespace
}  // namespace attend
