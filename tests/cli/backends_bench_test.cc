// Command-line tests of `attend backends` and `attend bench`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "attend/tensor/cuda.h"
#include "tests/cli/run_command.h"
#include "tests/support/overflowing_model.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace testing_support;

TEST(BackendsCommand, PrintsNothingWhenTheModelIsMissing) {
  const CommandResult ran = attend("backends --model-path /nowhere", Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, testing::IsEmpty());
}

TEST(BackendsCommand, StartsEachLineWithAName) {
  const CommandResult ran = attend("backends", Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  const auto lines = split_lines(ran.out);
  ASSERT_GE(lines.size(), 2u);
  EXPECT_THAT(lines[0], StartsWith("torch_native "));
  EXPECT_THAT(lines[1], StartsWith("cpu "));
}

TEST(BackendsCommand, ReportsTheChoiceAndRejections) {
  const CommandResult ran = attend("backends --device cpu --model-path " + kTinyModel, Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("cpu            chosen for prefill; chosen for decode"));
  EXPECT_THAT(ran.out, HasSubstr("\ntool calls: none (the chat template "));
  EXPECT_THAT(ran.out, HasSubstr("\nreasoning: part of the text (the chat template renders no reasoning)\n"));
  EXPECT_THAT(ran.out, HasSubstr("fa3            cpu: fa3 runs MHA on ampere, ada, hopper\n"));
  EXPECT_THAT(ran.out, HasSubstr("MHA: flashmla supports MLA only"));
}

TEST(BackendsCommand, ChoosesByFlagsLikeAnEngine) {
  const std::string backends = "backends --model-path " + kTinyModel;
  EXPECT_THAT(attend(backends + " --attention-backend fa3").out,
              HasSubstr("fa3            chosen for prefill"));
  const CommandResult deterministic =
      attend(backends + " --enable-deterministic-inference", Streams::kStdout);
  EXPECT_EQ(deterministic.exit_code, 0);
  EXPECT_NE(deterministic.out, attend(backends, Streams::kStdout).out);
  EXPECT_EQ(attend(backends + " --context-length 99999999").exit_code, 2);
}

TEST(BackendsCommand, RejectsIneffectiveFlags) {
  for (const std::string flags : {"--page-size 16", "--enable-deterministic-inference", "--device cpu",
                                  "--attention-backend fa9", "--context-length 9"}) {
    const CommandResult ran = attend("backends " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(flags.substr(0, flags.find(' ')) + ": requires --model-path"));
  }
  const CommandResult matrix = attend("backends --markdown --model-path " + kTinyModel);
  EXPECT_EQ(matrix.exit_code, 2);
  EXPECT_THAT(matrix.out, HasSubstr("--model-path: the support matrix covers every model"));
}

TEST(BenchCommand, WritesTheLimitOfEveryCase) {
  const std::string file = write_file("attention.json", "");
  const CommandResult ran = attend("bench attention --threads 1 --case 'verify bf16' --json " + file);
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const auto json = nlohmann::json::parse(std::ifstream(file));
  ASSERT_EQ(json.at("cases").size(), 1u);
  const auto& result = json.at("cases")[0];
  EXPECT_EQ(result.at("case"), "verify bf16 q8 kv4096");
  EXPECT_EQ(result.at("threads"), 1);
  for (const char* key : {"us", "limit", "share"}) EXPECT_GT(result.at(key), 0.0) << key;
  for (const char* key : {"machine", "instruction_set", "date", "version"})
    EXPECT_FALSE(json.at(key).get<std::string>().empty()) << key;
  EXPECT_FALSE(json.at("figures").empty());
  EXPECT_FALSE(result.at("kernel").get<std::string>().empty());
  EXPECT_THAT(ran.out, HasSubstr("verify bf16 q8 kv4096"));
  // On machines with matrix tiles, cases bound by vectors report the peak of matrix tiles too.
  bool has_tiles = false;
  for (const auto& figure : json.at("figures")) has_tiles |= figure.at("name") == "amx bf16";
  EXPECT_EQ(result.contains("tiles_limit"), has_tiles);
  EXPECT_LT(result.value("tiles_share", 0.5), 1.0);
}

TEST(BenchCommand, RejectsAFilterThatMatchesNoCase) {
  const CommandResult ran = attend("bench attention --case nothing");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("decode bf16 kv32768 dram"));
}

TEST(BenchCommand, MeasuresPromptAndGenerationOfAModel) {
  const std::string file = write_file("model.json", "");
  const CommandResult ran =
      attend("bench model --device cpu --model-path " + kTinyModel + " --depth 0,512 --json " + file);
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const auto json = nlohmann::json::parse(std::ifstream(file));
  std::vector<std::string> names;
  for (const auto& result : json.at("cases")) {
    names.push_back(result.at("case"));
    EXPECT_GT(result.at(names.back().starts_with("host") ? "us of host" : "tokens/s"), 0.0);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"pp512", "tg128", "pp512 @ d512", "tg128 @ d512",
                                             "host work of a step, 16 requests"}));
  EXPECT_THAT(json.at("kernels").dump(), AllOf(HasSubstr("linear of 512 x "), HasSubstr("linear of 1 x ")));
}

TEST(BenchCommand, TimesRoundsOfDrafts) {
  const std::string file = write_file("rounds.json", "");
  const CommandResult ran = attend("bench model --device cpu -m " + kTinyModel +
                                   " --speculative-algorithm EAGLE3 --speculative-draft-model-path " +
                                   kTinyModel + "-eagle3 --speculative-num-steps 3" +
                                   " --speculative-accept-length 2.5 --batch-sizes 1,2 -r 2 --json " + file);
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(std::ifstream(file));
  for (const auto& result : json.at("cases")) {
    names.push_back(result.at("case"));
    EXPECT_GT(result.at("us"), 0.0) << names.back();
  }
  // Sixteen rounds of half-integer mean.
  EXPECT_THAT(names, testing::ElementsAre("decode, batch 1", "verify of 4 tokens, batch 1",
                                          "draft of 3 tokens, batch 1", "host work of a round, batch 1",
                                          "round of 2.50 tokens, batch 1", "decode, batch 2",
                                          "verify of 4 tokens, batch 2", "draft of 3 tokens, batch 2",
                                          "host work of a round, batch 2", "round of 2.50 tokens, batch 2"));
}

TEST(BenchCommand, TimesDraftsOfRandomWeights) {
  const std::string shape = "bench model --device cpu --shape qwen3-0.6b --num-layers 7 -r 1 ";
  for (const char* draft : {"EAGLE3", "EAGLE", "STANDALONE --speculative-draft-shape qwen3-0.6b"}) {
    const CommandResult ran = attend(
        shape + "--speculative-accept-length 2 --speculative-num-steps 2 --speculative-algorithm " + draft);
    EXPECT_EQ(ran.exit_code, 0) << ran.out;
    EXPECT_THAT(ran.out, HasSubstr("round of 2.00 tokens, batch 1")) << draft;
  }
}

TEST(BenchCommand, RejectsRoundsThatItCannotTime) {
  const auto expect_rejected = [&](const std::string& flags, const std::string& why) {
    const CommandResult ran = attend("bench model --device cpu " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(why)) << flags;
  };
  expect_rejected("-m " + kTinyModel + " --speculative-accept-length 2", "requires --speculative-algorithm");
  const std::string shape = "--shape qwen3-0.6b --num-layers 7 --speculative-algorithm ";
  expect_rejected(shape + "SUFFIX", "expected STANDALONE, EAGLE, EAGLE3 or NEXTN");
  expect_rejected(shape + "STANDALONE", "speculative_draft_model_path: required");
  expect_rejected(shape + "NEXTN", "neither a draft head nor a model with layers for multi-token prediction");
  expect_rejected(shape + "EAGLE3 --speculative-draft-shape qwen3-0.6b",
                  "only with --speculative-algorithm STANDALONE");
  expect_rejected(shape + "EAGLE3 --speculative-num-steps 3 --speculative-accept-length 5",
                  "speculative_accept_length 5: expected 1 to 4");
  expect_rejected(shape + "EAGLE3 --prompt-tokens 5",
                  "--prompt-tokens: no effect with --speculative-algorithm");
  expect_rejected(shape + "EAGLE3 --depth 131072", "--depth 131072: 1 to ");
}

TEST(BenchCommand, ReplaysATrace) {
  const std::string file = write_file("serving.json", "");
  const std::string serving = "bench serving --device cpu --model-path " + kTinyModel +
                              " --context-length 256 --max-total-tokens 2048 ";
  const CommandResult ran =
      attend(serving + "--num-prompts 6 --request-rate 200 --input-len 8:40 --output-len 4 --json " + file);
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("6 requests, 8 to 40 tokens in, 4 out, Poisson, 200 per second"),
                             HasSubstr("time to first token"), HasSubstr("prefix cache hits")));
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(file)).at("requests"), 6);

  const std::string profile = write_file("steps.json", "");
  const CommandResult profiled =
      attend(serving + "--num-prompts 2 --input-len 8 --output-len 4 --profile " + profile);
  ASSERT_EQ(profiled.exit_code, 0) << profiled.out;
  const nlohmann::json events = nlohmann::json::parse(std::ifstream(profile)).at("traceEvents");
  // Two requests that arrive together: one step computes their prompts and first tokens, three decode.
  EXPECT_EQ(std::ranges::count_if(events, [](const auto& event) { return event.at("name") == "step"; }), 4);

  const std::string trace =
      write_file("trace.jsonl",
                 "{\"prompt\": \"copy: laugh ->\", \"output_len\": 3}\n{\"turns\": [{\"prompt\": \"a\"}]}\n");
  const CommandResult of_file =
      attend(serving + "--offline --output-len 2 --trace " + trace, Streams::kStdout);
  EXPECT_EQ(of_file.exit_code, 0);
  EXPECT_THAT(of_file.out, HasSubstr("2 requests, " + trace + ", all at the start"));
}

TEST(BenchCommand, RejectsAnInvalidTrace) {
  const std::string serving = "bench serving --device cpu --model-path " + kTinyModel;
  const auto expect_rejected = [&](const std::string& flags, const std::string& why) {
    const CommandResult ran = attend(serving + " " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(why)) << flags;
  };
  expect_rejected("--burstiness 2", "--burstiness: needs --request-rate");
  expect_rejected("--input-len 9:3", "--input-len '9:3': expected tokens");
  expect_rejected("--shared-prefixes 2", "--shared-prefix-len 0: expected both or neither");
  expect_rejected("--input-len 4000", "conversation 1 of the trace: 4128 tokens with its answers");
  expect_rejected("--trace /nowhere", "/nowhere");
  expect_rejected("--trace /nowhere --num-turns 2", "--num-turns: not with --trace, whose file contains it");
  expect_rejected("--json /nowhere/x", "--json /nowhere/x: cannot be written");
}

TEST(BenchCommand, RejectsAModelWithNonFiniteLogits) {
  const auto model = std::filesystem::path(testing::TempDir()) / "attend_bench_overflowing";
  testing_support::make_overflowing_model(kGolden, model, 77);  // one of 512 random tokens out of 128
  auto config = nlohmann::json::parse(std::ifstream(model / "config.json"));
  config["max_position_embeddings"] = 1024;
  std::ofstream(model / "config.json") << config;
  const CommandResult ran = attend("bench model --device cpu --model-path " + model.string());
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("logits are NaN"));
}

// Names of the cases that a benchmark of the bundled model reports.
std::vector<std::string> bench_cases(const std::string& flags) {
  const std::string file = write_file("cases.json", "");
  const CommandResult ran =
      attend("bench model --device cpu -m " + kTinyModel + " --json " + file + " " + flags);
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(std::ifstream(file));
  for (const auto& result : json.at("cases"))
    if (!result.at("case").get<std::string>().starts_with("host")) names.push_back(result.at("case"));
  return names;
}

// Flags of llama-bench.
TEST(BenchCommand, AcceptsNumberLists) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(bench_cases("-p 32,64 -n 0 -d 0,100"), (Names{"pp32", "pp64", "pp32 @ d100", "pp64 @ d100"}));
  EXPECT_EQ(bench_cases("-p 0 -n 2,3 -d 7"), (Names{"tg2 @ d7", "tg3 @ d7"}));
  EXPECT_EQ(bench_cases("--n-prompt 16 -p 48 --n-gen 2 --n-depth 64"),
            (Names{"pp16 @ d64", "pp48 @ d64", "tg2 @ d64"}));
}

TEST(BenchCommand, HonorsRepetitions) {
  const std::string file = write_file("repeated.json", "");
  ASSERT_EQ(attend("bench model --device cpu -p 32 -n 3 -r 4 --json " + file + " -m " + kTinyModel).exit_code,
            0);
  const auto cases = nlohmann::json::parse(std::ifstream(file)).at("cases");
  EXPECT_EQ(cases[0].at("repeats"), 4);
  EXPECT_EQ(cases[1].at("repeats"), 12);
}

TEST(BenchCommand, TimesTheFullContext) {
  EXPECT_EQ(bench_cases("-p 2 -n 2 -d 2045"), (std::vector<std::string>{"pp2 @ d2045", "tg2 @ d2045"}));
  EXPECT_EQ(bench_cases("-p 2047 -n 0"), (std::vector<std::string>{"pp2047"}));
}

TEST(BenchCommand, RejectsLengthsBeyondTheContext) {
  for (const auto& [flags, why] :
       {std::pair{"-p 2 -n 2 -d 2046", "--depth 2046: 0 to 2045: the model's maximum length is 2048"},
        {"-d 2147483136",
         "--depth 2147483136: 0 to 1535: the model's maximum length is 2048, of which 512 are"},
        {"-d -1", "--depth -1: 0 to 1535"},
        {"-p 2048", "--prompt-tokens 2048: 0 to 2047; the model's maximum length is 2048"},
        {"-n 2047", "--new-tokens 2047: 0 to 2046; the model's maximum length is 2048"},
        {"-p 0 -n 0", "--prompt-tokens 0 and --new-tokens 0: nothing to time"},
        {"-d 0,,64", "--depth '0,,64': expected integers with commas between them, each 0 to the model's"}}) {
    const CommandResult ran = attend("bench model --device cpu -m " + kTinyModel + " " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(why));
  }
  const CommandResult shape = attend("bench model --shape llama-9");
  EXPECT_EQ(shape.exit_code, 2);
  EXPECT_THAT(shape.out, HasSubstr("llama-3.1-8b"));
}

// An interrupted benchmark keeps the cases that it has measured.
TEST(BenchCommand, PrintsAndWritesACaseAsSoonAsItIsMeasured) {
  const std::string out = write_file("stopped.txt", ""), json = write_file("stopped.json", "");
  std::string depths = "0";
  for (int depth = 1; depth < 100; ++depth) depths += "," + std::to_string(depth);
  const std::string bench = std::string(ATTEND_BINARY) + " bench model --device cpu -p 32 -n 1 -d " + depths +
                            " -m " + kTinyModel + " --json " + json;
  // The command ends by itself only after all depths are measured.
  const std::string script = bench + " > " + out + " 2>&1 & bench=$!; until grep -q '^tg1 @ d1 ' " + out +
                             "; do kill -0 $bench || exit 1; sleep 0.01; done; kill $bench; wait $bench";
  EXPECT_EQ(WEXITSTATUS(std::system(script.c_str())), 128 + SIGTERM);
  const auto cases = nlohmann::json::parse(std::ifstream(json)).at("cases");
  EXPECT_GE(cases.size(), 4u);
  EXPECT_LT(cases.size(), 200u);
  EXPECT_EQ(cases[3].at("case"), "tg1 @ d1");
}

TEST(BenchCommand, ShowsMatrixTilesOnlyIfTheyAreTheLimit) {
  EXPECT_THAT(attend("bench model --device cpu -p 1 -n 1 -m " + kTinyModel).out, Not(HasSubstr("of AMX")));
  const std::string attention = attend("bench attention -t 1 --case 'verify bf16'").out;
  const bool has_tiles =
      attention.find("amx bf16") != std::string::npos;  // listed among the limits of the machine
  EXPECT_EQ(attention.find("of AMX") != std::string::npos, has_tiles) << attention;
}

TEST(BenchCommand, RejectsZeroLayers) {
  for (const std::string num_layers : {"0", "-3"}) {
    const CommandResult ran = attend("bench model --shape qwen3-0.6b --num-layers " + num_layers);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.out, HasSubstr("--num-layers '" + num_layers + "': expected an integer from 1 to 65536"));
  }
  const CommandResult of_files = attend("bench model --num-layers 1 --model-path " + kTinyModel);
  EXPECT_EQ(of_files.exit_code, 2);
  EXPECT_THAT(of_files.out, HasSubstr("--num-layers: only with --load-format dummy"));
}

TEST(BenchCommand, StoresRandomWeightsInTheRequestedFormat) {
  const CommandResult ran =
      attend("bench model --device cpu --shape qwen3-0.6b --num-layers 1 --weight-format int3");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out,
              HasSubstr("weight format 'int3': expected one of fp8, fp8-block, int8, int4, int4-g32, mxfp4"));
  const CommandResult narrow =
      attend("bench model --device cpu --shape gpt-oss-20b --num-layers 1 --weight-format int4");
  EXPECT_EQ(narrow.exit_code, 2);
  EXPECT_THAT(narrow.out,
              HasSubstr("has 2880 inputs: expected a multiple of 128; weight format int4-g32 uses"));
  const CommandResult of_files = attend("bench model --weight-format fp8 --model-path " + kTinyModel);
  EXPECT_EQ(of_files.exit_code, 2);
  EXPECT_THAT(of_files.out, HasSubstr("--weight-format: only with --load-format dummy"));
}

TEST(BackendsCommand, DescribesQuantizedWeights) {
  const std::string goldens = ATTEND_SOURCE_DIR "/tests/goldens/";
  const CommandResult awq = attend("backends --device cpu --model-path " + goldens + "llama-awq");
  EXPECT_EQ(awq.exit_code, 0) << awq.out;
  EXPECT_THAT(awq.out,
              HasSubstr("weights of linear layers: int4 in groups of 32 (awq), 0.58 bytes each; the "));
  const CommandResult mixed = attend("backends --device cpu --model-path " + goldens + "llama-fp8-channel");
  EXPECT_THAT(mixed.out, HasSubstr("weights of linear layers: 94.4 % fp8 per output, 5.6 % bfloat16 "
                                   "(compressed-tensors), 1.08 bytes each on average; the "));
}

// Dequantized weight files next to the config of the quantized model.
TEST(BackendsCommand, DescribesPlainFilesUnderAQuantizationConfig) {
  const auto model = std::filesystem::path(testing::TempDir()) / "attend_backends_widened";
  std::filesystem::remove_all(model);
  std::filesystem::create_directories(model);
  const std::string goldens = ATTEND_SOURCE_DIR "/tests/goldens/";
  auto config = nlohmann::json::parse(std::ifstream(goldens + "llama-gqa4-hd32/config.json"));
  config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}};
  std::ofstream(model / "config.json") << config;
  EXPECT_THAT(attend("backends --device cpu --model-path " + model.string()).out,
              HasSubstr("weights of linear layers: int4 in groups of 32 (awq) by config.json; no files"));
  std::filesystem::copy(goldens + "llama-gqa4-hd32/model.safetensors", model);
  EXPECT_THAT(attend("backends --device cpu --model-path " + model.string()).out,
              HasSubstr("weights of linear layers: float32, 4.00 bytes each\n"));
  const std::string prompt = write_file("widened_ids.jsonl", "{\"input_ids\": [5, 6, 7]}\n");
  const CommandResult ran =
      attend("generate --device cpu -n 1 --prompts-file " + prompt + " --model-path " + model.string());
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("weights of linear layers: float32, 4.00 bytes each\n"));
}

TEST(BenchCommand, SuggestsSmallerModelsWhenOneDoesNotFit) {
  const CommandResult ran = attend("bench model --device cpu --shape llama-3.1-8b --num-layers 65536");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr(" GB), free "));
  EXPECT_THAT(ran.out, Not(HasSubstr("--max-total-tokens"))) << "bench has no such flag";
  EXPECT_THAT(ran.out, HasSubstr("; fewer layers need less memory (--num-layers) or a smaller --shape"));
}

// Truncation of a model with the type of each layer in its config.
TEST(BenchCommand, KeepsTheFirstLayersOfAConfigWithLayerTypes) {
  const auto model = std::filesystem::path(testing::TempDir()) / "attend_bench_layer_types";
  std::filesystem::create_directories(model);
  const std::string sliding = ATTEND_SOURCE_DIR "/tests/goldens/qwen2-some-layers-slide";
  auto config = nlohmann::json::parse(std::ifstream(sliding + "/config.json"));
  config["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  config["max_position_embeddings"] = 1024;
  std::ofstream(model / "config.json") << config;
  const CommandResult ran =
      attend("bench model --device cpu --load-format dummy --num-layers 1 --model-path " + model.string());
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
}

TEST(BenchCommand, MeasuresAnMlaModelWithEveryBackend) {
  const auto model = std::filesystem::path(testing::TempDir()) / "attend_bench_deepseek";
  std::filesystem::create_directories(model);
  auto config =
      nlohmann::json::parse(std::ifstream(ATTEND_SOURCE_DIR "/tests/goldens/deepseek-v3/config.json"));
  config["max_position_embeddings"] = 1024;
  std::ofstream(model / "config.json") << config;
  const std::string file = write_file("every_backend.json", "");
  const CommandResult ran =
      attend("bench model --device cpu --load-format dummy --num-layers 2 --attention-backend all " +
             std::string("--json ") + file + " --model-path " + model.string());
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  std::vector<std::string> prompts;
  const auto json = nlohmann::json::parse(std::ifstream(file));
  for (const auto& result : json.at("cases"))
    if (result.at("case").get<std::string>().ends_with(": pp512")) prompts.push_back(result.at("case"));
  EXPECT_THAT(prompts, testing::IsSupersetOf({"cpu: pp512", "triton: pp512", "flashinfer: pp512",
                                              "fa3: pp512", "fa4: pp512", "flashmla: pp512",
                                              "cutlass_mla: pp512", "trtllm_mla: pp512"}));
  EXPECT_THAT(ran.out, HasSubstr("trtllm_mha is skipped"));
  EXPECT_THAT(ran.out, HasSubstr("supports MHA only"));
}

TEST(BenchCommand, NeedsNoTemporaryFiles) {
  const CommandResult ran =
      attend("bench model --device cpu --shape qwen3-0.6b --num-layers 1 --depth 131072", Streams::kBoth,
             "TMPDIR=/nonexistent");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("--depth 131072: 0 to 130559: the model's maximum length is 131072"));
}

TEST(BenchCommand, NamesFlagsOfTheOtherDeviceKind) {
  const CommandResult batches =
      attend("bench model --device cpu --batch-sizes 1,8 --model-path " + kTinyModel);
  EXPECT_EQ(batches.exit_code, 2);
  EXPECT_THAT(batches.out, HasSubstr("--batch-sizes: only for GPUs; the device is cpu"));
  const CommandResult depths =
      attend("bench model --device cuda --depth 512,1024 --model-path " + kTinyModel);
  EXPECT_EQ(depths.exit_code, 2);
  EXPECT_THAT(depths.out, HasSubstr("--depth: expected one number on a GPU, got 2"));
}

// Expects that each flag is rejected, and missing in the command's --help.
void expect_flags_unavailable(const std::string& command, const std::vector<std::string>& flags) {
  const CommandResult help = attend(command + " --help", Streams::kStdout);
  ASSERT_EQ(help.exit_code, 0);
  for (const std::string& flag : flags) {
    EXPECT_THAT(help.out, Not(HasSubstr(flag))) << command;
    const CommandResult ran = attend(command + " --model-path " + kTinyModel + " " + flag + " 1");
    EXPECT_EQ(ran.exit_code, 2) << command << " " << flag;
    EXPECT_THAT(ran.out, HasSubstr(flag)) << command;
  }
}

TEST(BenchCommand, HasNoFlagsForSizesThatItDerives) {
  expect_flags_unavailable("bench model",
                           {"--context-length", "--max-running-requests", "--max-total-tokens",
                            "--chunked-prefill-size", "--mem-fraction-static", "--random-seed"});
}

TEST(BackendsCommand, HasNoIneffectiveFlags) {
  expect_flags_unavailable("backends", {"--random-seed", "--threads", "--load-format"});
}

TEST(BenchCommand, ExplainsAttentionBenchOnAGpu) {
  for (const std::string flags : {"--device cuda", "--help"})
    EXPECT_THAT(attend("bench attention " + flags).out,
                AllOf(HasSubstr("cuda_attention_bench"), HasSubstr("-DATTEND_BENCHMARKS=ON")));
}

TEST(BenchCommand, RejectsBatchesBeyondTheModelsContext) {
  for (const auto& [sizes, why] : {std::pair{"0", "--batch-sizes 0: 1 to 8191"},
                                   {"8,2047", "--batch-sizes 2047: the model's maximum length is"}}) {
    const CommandResult ran =
        attend("bench model --device cuda --model-path " + kTinyModel + " --batch-sizes " + sizes);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.out, HasSubstr(why));
  }
}

TEST(BenchCommand, RejectsADepthBeyondTheModelsContext) {
  const CommandResult ran = attend("bench model --device cuda --model-path " + kTinyModel + " --depth 1912");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out,
              HasSubstr("--depth 1912: the model's maximum length is 2048, 137 of which are reserved for"));
}

TEST(BenchCommand, RejectsAGpuThatDoesNotExist) {
  const CommandResult ran = attend("bench model --device cuda:77 --model-path " + kTinyModel);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, testing::AnyOf(HasSubstr("cuda:77"), HasSubstr("without CUDA")));
}

TEST(BenchCommand, MeasuresDecodeAndPrefillOnAGpuWithLimits) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
  const std::string file = write_file("gpu_model.json", "");
  // Overlapped steps have no separate host time, so overlap is disabled.
  const CommandResult ran =
      attend("bench model --device cuda --batch-sizes 1,3 --disable-overlap-schedule --model-path " +
             kTinyModel + " --json " + file);
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const auto json = nlohmann::json::parse(std::ifstream(file));
  std::vector<std::string> names;
  for (const auto& result : json.at("cases")) {
    names.push_back(result.at("case"));
    const bool host = names.back().starts_with("host");
    EXPECT_GT(result.at(host ? "us of host" : "tokens/s"), 0.0);
    EXPECT_EQ(result.contains("share"), !host);
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "decode, batch 1", "host work, median, batch 1", "host work, 99th percentile, batch 1",
                       "decode, batch 3", "host work, median, batch 3", "host work, 99th percentile, batch 3",
                       "prefill of 2047 tokens"}));
  for (const char* key : {"machine", "driver", "cuda", "model", "attention", "date"})
    EXPECT_FALSE(json.at(key).get<std::string>().empty()) << key;
  EXPECT_EQ(json.at("graphs").get<std::string>().substr(0, 13), "2 batch sizes");
}

TEST(BenchCommand, ParsesNumbersAsStrictlyAsAnEngine) {
  const std::string model = "bench model --model-path " + kTinyModel;
  for (const std::string flags :
       {"--num-layers ''", "--depth ''", "--shape ''", "--threads x", "--depth 0,b", "--batch-sizes 1,b"}) {
    const CommandResult ran = attend(model + " " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(flags.substr(0, flags.find(' ')))) << flags;
  }
}

}  // namespace
}  // namespace attend
