// Flags of llama.cpp that attend's commands accept or reject.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"

namespace attend {
namespace {

using testing::HasSubstr;
using namespace testing_support;

// Common invocations of llama.cpp. Each flag has the same effect.
TEST(LlamaCppFlags, MPAndNSetModelPromptAndNumberOfTokens) {
  const std::string prompt_flag = " -p 'recall: sun=42, river=17, fox=80; river='";
  EXPECT_THAT(attend("generate -m " + kTinyModel + prompt_flag + " -n 8", Streams::kStdout).out,
              HasSubstr("17"));
  EXPECT_THAT(attend("generate -m " + kTinyModel + prompt_flag + " -n 5 --ignore-eos").out,
              HasSubstr("5 tokens generated"));
  EXPECT_THAT(attend("generate -m " + kTinyModel + prompt_flag + " --n-predict 4 --ignore-eos").out,
              HasSubstr("4 tokens generated"));
  const CommandResult absent = attend("generate -m /no/such/model" + prompt_flag);
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.out, HasSubstr("/no/such/model"));
  const CommandResult gguf = attend("generate -m " + write_file("model.gguf", "GGUF") + prompt_flag);
  EXPECT_EQ(gguf.exit_code, 2);
  EXPECT_THAT(gguf.out, HasSubstr("model.gguf"));
}

TEST(LlamaCppFlags, FReadsThePromptFromAFile) {
  const std::string text = "recall: sun=42, river=17, fox=80; river=";
  const std::string file = write_file("llama_cpp_prompt.txt", text + "\n");
  const std::string generate = "generate -n 4 -m " + kTinyModel;
  const CommandResult from_file = attend(generate + " -f " + file, Streams::kStdout);
  EXPECT_EQ(from_file.exit_code, 0);
  EXPECT_THAT(from_file.out, HasSubstr("17"));
  EXPECT_EQ(from_file.out, attend(generate + " -p '" + text + "'", Streams::kStdout).out);
}

TEST(LlamaCppFlags, TAndCSetThreadsAndContext) {
  const CommandResult ran = attend("generate --device cpu -n 1 -p a -t 3 -c 192 -m " + kTinyModel);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr(", 3 threads, activations"));
  EXPECT_THAT(ran.out, HasSubstr("context 192,"));
}

TEST(LlamaCppFlags, TempAndSSetSampling) {
  const std::string generate = "generate -n 24 --ignore-eos -p a -m " + kTinyModel;
  EXPECT_THAT(attend(generate + " --temp 0").out, HasSubstr("sampling: greedy"));
  EXPECT_THAT(attend(generate + " --temp 1.5").out, HasSubstr("sampling: temperature 1.5"));
  const auto sampled = [&](const char* seed) {
    return attend(generate + " --temp 4 -s " + seed, Streams::kStdout).out;
  };
  EXPECT_EQ(sampled("7"), sampled("7"));
  EXPECT_NE(sampled("7"), sampled("8"));
}

TEST(LlamaCppFlags, NOfMinusOneContinuesToTheEndOfTheContext) {
  const CommandResult ran =
      attend("generate -m " + kTinyModel + " -p a -n -1 -c 40 --ignore-eos --json", Streams::kStdout);
  ASSERT_EQ(ran.exit_code, 0);
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json.at("input_ids").size() + json.at("output_ids").size(), 40u);
  EXPECT_EQ(json.at("finish_reason"), "length");
}

TEST(LlamaCppFlags, COfZeroUsesTheModelsContext) {
  EXPECT_THAT(attend("generate -n 1 -p a -c 0 -m " + kTinyModel).out, HasSubstr("context 2048,"));
}

TEST(LlamaCppFlags, SeedMinusOneReportsARandomSeed) {
  const std::string generate = "generate -n 24 --ignore-eos -p a --temp 4 -m " + kTinyModel + " -s ";
  const CommandResult drawn = attend(generate + "-1");
  EXPECT_EQ(drawn.exit_code, 0);
  const size_t at = drawn.out.find(", seed ");
  ASSERT_NE(at, std::string::npos) << drawn.out;
  const std::string seed = drawn.out.substr(at + 7, drawn.out.find(" (random)") - at - 7);
  EXPECT_THAT(drawn.out, HasSubstr(attend(generate + seed, Streams::kStdout).out));
}

// CLI11 would parse -ngl as -n with the value "gl", and -hf as -h.
TEST(LlamaCppFlags, UnsupportedFlagsSuggestAReplacement) {
  for (const auto& [flags, instead] :
       {std::pair{"-ngl 99",
                  "-ngl: a flag of llama.cpp; in attend: a model runs on a single device: --device"},
        {"--n-gpu-layers 99", "--n-gpu-layers: a flag of llama.cpp"},
        {"-hf Qwen/Qwen3-0.6B-GGUF", "-hf: a flag of llama.cpp; in attend: nothing is downloaded"},
        {"-fa off", "-fa off: expected on or auto or 1: attention never stores scores"},
        {"-ctk q8_0", "--kv-cache-dtype for K and V"},
        {"-ctv f16", "--kv-cache-dtype for K and V"},
        {"-ub 512", "--chunked-prefill-size"},
        {"-sys x", "-sys: in attend --system, which attend generate does not have"},
        {"-cnv", "use attend chat"},
        {"--mlock", "weights are always mapped"},
        {"--repeat-penalty 1.1", "--repetition-penalty"},
        {"-hello", "argument -hello: unknown flag"}}) {
    const CommandResult ran = attend("generate -m " + kTinyModel + " -p x " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(instead));
  }
  EXPECT_THAT(attend("bench model -m " + kTinyModel + " -ctk q8_0").out, HasSubstr("--kv-cache-dtype"));
  EXPECT_EQ(attend("generate -m " + kTinyModel + " -p x -n1 -t2", Streams::kStdout).exit_code, 0);
  EXPECT_EQ(attend("generate -h").exit_code, 0);
}

TEST(LlamaCppFlags, GgufOnlyDirectoryIsRejected) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "attend_gguf_folder";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "Qwen3-Q4_K_M.gguf") << "GGUF";
  const std::string generate = "generate -p x -m " + folder.string();
  const CommandResult ran = attend(generate);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out,
              HasSubstr("no config.json: expected a model directory as Hugging Face has them, with "
                        "config.json, tokenizer.json and safetensors (Qwen3-Q4_K_M.gguf is there: pass "
                        "this file"));
  const std::string note = "(Qwen3-Q4_K_M.gguf is there: pass this file instead of the folder to run it)";
  std::filesystem::copy_file(kTinyModel + "/config.json", folder / "config.json");
  EXPECT_THAT(attend(generate).out,
              HasSubstr("the model directory has no tokenizer.json " + note + "; expected input_ids"));
  for (const std::string command : {"generate --chat -p x -m ", "chat -m "})
    EXPECT_THAT(attend(command + folder.string()).out,
                HasSubstr("no chat template " + note + "; pass one with"));
  std::ofstream(folder / "own.jinja") << "{{ messages[0].content }}";
  const std::string own_template = " --chat-template " + (folder / "own.jinja").string();
  for (const std::string command : {"generate --chat -p x -m ", "chat -m "})
    EXPECT_THAT(attend(command + folder.string() + own_template).out,
                HasSubstr("has no tokenizer.json " + note));
  std::filesystem::copy_file(kTinyModel + "/tokenizer.json", folder / "tokenizer.json");
  const CommandResult without_weights = attend(generate);
  EXPECT_EQ(without_weights.exit_code, 2);
  EXPECT_THAT(without_weights.out, HasSubstr(note));
  std::filesystem::remove_all(folder);
}

// Standard input may be endless.
TEST(LlamaCppFlags, FStopsReadingAtTheSizeOfTheContext) {
  const CommandResult ran = attend("generate -m " + kTinyModel + " -c 8 -f -", Streams::kBoth, "yes |");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(
      ran.out,
      HasSubstr(
          "prompts file -: more than 8192 bytes, more than the context of 8 tokens: expected one prompt"));
}

}  // namespace
}  // namespace attend
