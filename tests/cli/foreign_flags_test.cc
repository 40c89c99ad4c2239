// Flags of vLLM, SGLang and llama.cpp: accepted, replaced by attend's own, or refused with a replacement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/run_command.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace testing_support;

const std::string kGenerateTwo = "generate --device cpu -n 2 --ignore-eos -p a -m " + kTinyModel;

TEST(ForeignFlags, AcceptsHarmlessFlagsWithOneLogLineEach) {
  for (const auto& [flags, line] :
       {std::pair{"--trust-remote-code",
                  "info: --trust-remote-code: no effect; attend never runs code of a model\n"},
        {"--pipeline-parallel-size 1",
         "info: --pipeline-parallel-size: no effect; ranks divide a model by --tp-size only"},
        {"--ep-size=1", "info: --ep-size: no effect;"},
        {"-pp 1", "info: -pp: no effect;"},
        {"--enable-metrics", "info: --enable-metrics: no effect; /metrics is always served"},
        {"--disable-log-requests", "info: --disable-log-requests: no effect;"},
        {"--swap-space 4", "info: --swap-space: no effect; a preempted request is computed again"},
        {"--enable-prefix-caching", "info: --enable-prefix-caching: no effect;"},
        {"--enable-auto-tool-choice", "info: --enable-auto-tool-choice: no effect;"},
        {"--uvicorn-log-level warning", "info: --uvicorn-log-level: no effect;"},
        {"--download-dir /tmp", "info: --download-dir: no effect;"},
        {"-O3", "info: -O3: no effect; attend does not use torch"},
        {"--bucket-time-to-first-token 0.1 0.5 1", "the buckets of /metrics are fixed"},
        {"-fa on", "info: -fa: no effect;"},
        {"-fa", "info: -fa: no effect;"},
        {"--jinja", "info: --jinja: no effect; chat templates are always evaluated"}}) {
    const CommandResult ran = attend(kGenerateTwo + " " + flags);
    EXPECT_EQ(ran.exit_code, 0) << ran.out;
    EXPECT_THAT(ran.out, HasSubstr(line));
    EXPECT_THAT(ran.out, HasSubstr("2 tokens generated"));
  }
  EXPECT_THAT(attend(kGenerateTwo + " --jinja --log-level warning").out, Not(HasSubstr("--jinja")));
}

TEST(ForeignFlags, RefusesValuesThatWouldHaveAnEffect) {
  for (const auto& [flags, message] :
       {std::pair{"--ep-size 2", "--ep-size 2: expected 1: ranks divide a model by --tp-size only"},
        {"--pipeline-parallel-size=8", "--pipeline-parallel-size 8: expected 1"},
        {"--pipeline_parallel_size 8", "--pipeline-parallel-size 8: expected 1"},
        {"--ep-size", "--ep-size: expected a value"},
        {"--ep-size --json", "--ep-size: expected a value, but --json is a flag"},
        {"--trust-remote-code=false", "--trust-remote-code=false: expected no value"},
        {"--tokenizer-mode slow",
         "--tokenizer-mode slow: expected auto: the tokenizer is read from tokenizer.json"},
        {"--grammar-backend outlines", "--grammar-backend outlines: expected xgrammar"},
        {"--task transcription",
         "--task transcription: expected auto or generate or embed or embedding or encode or score or "
         "classify "
         "or reward: the model decides"},
        {"--task embed", "--task: in attend --is-embedding, which attend generate does not have"}}) {
    const CommandResult ran = attend(kGenerateTwo + " " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(message));
  }
}

TEST(ForeignFlags, RefusesOtherFlagsWithAReplacement) {
  for (const auto& [flags, message] :
       {std::pair{
            "--lora adapter.gguf",
            "--lora: a flag of llama.cpp; in attend: --lora-paths NAME=FOLDER, an adapter that PEFT saved"},
        {"--quantization awq", "config.json names the format of quantized weights"},
        {"--num-gpu-blocks-override 10", "a flag of vLLM; in attend: --max-total-tokens"},
        {"--hicache-storage-backend", "a flag of SGLang; in attend: evicted prefixes are stored in files"},
        {"--model-draft x", "--speculative-algorithm STANDALONE --speculative-draft-model-path MODEL"},
        {"--no-enable-chunked-prefill", "--chunked-prefill-size with the context length"}}) {
    const CommandResult ran = attend(kGenerateTwo + " " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(message));
  }
}

TEST(ForeignFlags, ReplacesFlagsWithTheSameMeaning) {
  const auto run = [](const std::string& flags) { return attend(kGenerateTwo + " " + flags).out; };
  EXPECT_THAT(run("-np 3"), HasSubstr("up to 3 requests per step"));
  EXPECT_THAT(run("--max-num-batched-tokens 77x"), HasSubstr("--chunked-prefill-size '77x'"));
  EXPECT_THAT(run("--gpu-memory-utilization 0.9"),
              HasSubstr("warning: --mem-fraction-static: ignored; only for GPUs"));
  EXPECT_THAT(run("--enforce-eager"), HasSubstr("warning: --disable-cuda-graph: ignored; only for GPUs"));
  EXPECT_THAT(run("--cuda-graph-sizes 1 2 x"), HasSubstr("--cuda-graph-bs '1,2,x'"));
  EXPECT_THAT(run("--scheduling-policy fastest"), HasSubstr("fastest"));
  EXPECT_THAT(attend("generate -n 2 -p a -m " + kTinyModel + " --base-gpu-id x").out,
              HasSubstr("--device cuda:x"));
  EXPECT_EQ(run("--log-disable").find("info:"), std::string::npos);
  EXPECT_THAT(attend(kGenerateTwo + " --chat --chat-template-file /nowhere").out,
              HasSubstr("/nowhere: no such file"));
}

TEST(ForeignFlags, SeedIsTheSeedOfAServer) {
  const std::string serve = "serve --device cpu --port 0 -m " + kTinyModel + " --seed ";
  EXPECT_THAT(attend(serve + "x").out, HasSubstr("--random-seed 'x': expected an integer from 0"));
  const CommandResult embed = attend("embed -p a -m x --seed 1");
  EXPECT_EQ(embed.exit_code, 2);
  EXPECT_THAT(embed.out, HasSubstr("--seed: in attend --random-seed, which attend embed does not have"));
}

TEST(ForeignFlags, ReplacesTasksOfVllm) {
  for (const auto& [flags, own] : {std::pair{"--task score", "--is-embedding"},
                                   {"--task=classify", "--is-embedding"},
                                   {"--runner pooling", "--is-embedding"},
                                   {"--convert classify", "--is-reranker"}}) {
    // The two flags exclude each other, which shows the replacement.
    const std::string other = own == std::string("--is-embedding") ? "--is-reranker" : "--is-embedding";
    EXPECT_THAT(attend("serve --device cpu --port 0 -m " + kTinyModel + " " + other + " " + flags).out,
                HasSubstr("--is-embedding and --is-reranker: expected one of them"))
        << flags;
  }
}

// Underscores are accepted as in vLLM.
TEST(ForeignFlags, UnderscoresAreReadAsHyphens) {
  EXPECT_THAT(attend(kGenerateTwo + " --max_model_len 96").out, HasSubstr("context 96,"));
}

// To update the page: build/release/attend help other-flags > docs/operating/flags-of-other-programs.md
TEST(ForeignFlags, DocsMatchTheTable) {
  std::ifstream file(ATTEND_SOURCE_DIR "/docs/operating/flags-of-other-programs.md");
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), attend("help other-flags", Streams::kStdout).out);
}

TEST(ForeignFlags, EachNameHasOneRow) {
  std::set<std::string> names;
  for (const std::string& line : split_lines(attend("help other-flags", Streams::kStdout).out)) {
    if (!line.starts_with("| `")) continue;
    std::istringstream cell(line.substr(2, line.find(" |") - 2));
    for (std::string name; cell >> name;)
      EXPECT_TRUE(names.insert(name.substr(0, name.rfind('`') + 1)).second) << name;
  }
  EXPECT_GT(names.size(), 250u);
}

TEST(Command, GuessesMistypedFlags) {
  for (const auto& [flags, message] :
       {std::pair{"--temprature 1", "argument --temprature: unknown flag (--temperature?) (see --help)"},
        {"--max-new-token=3", "unknown flag (--max-new-tokens?)"},
        {"--frobnicate", "argument --frobnicate: unknown flag (see --help)"},
        {"--port 3", "--port: a flag of attend serve, not of attend generate"},
        {"-y", "argument -y: unknown flag"}}) {
    const CommandResult ran = attend(kGenerateTwo + " " + flags);
    EXPECT_EQ(ran.exit_code, 2) << flags;
    EXPECT_THAT(ran.out, HasSubstr(message));
  }
}

}  // namespace
}  // namespace attend
