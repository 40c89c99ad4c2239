// Times decode steps of a whole model with random weights through the engine, host work included:
// milliseconds of a step beside those that reading weights and K/V takes at the fastest read seen in this
// run.
//
//   cuda_decode_bench MODEL_PATH [--no-graph] [--deterministic] [--json FILE] [BATCH_SIZE...]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "attend/bench/report.h"
#include "attend/engine/engine.h"
#include "benchmarks/cuda/gpu_timing.h"

namespace attend::bench {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr int kPromptTokens = 1000;
constexpr int kSteps = 64;

// Bytes that a decode step must read: the weights but for the rows of the embedding that no token takes, and
// K/V.
double bytes_of_step(const Engine& engine, int batch_size) {
  const ModelConfig& config = engine.model_config();
  const double element_bytes = static_cast<double>(size_of(engine.info().dtype));
  const double embedding_bytes = element_bytes * config.vocab_size * config.hidden_size;
  const double weights =
      static_cast<double>(engine.info().weight_bytes) - (config.tie_word_embeddings ? 0.0 : embedding_bytes);
  const double kv_token_bytes = 2.0 * config.num_layers * config.num_kv_heads * config.head_dim *
                                static_cast<double>(size_of(engine.info().kv_cache_dtype));
  return weights + kv_token_bytes * batch_size * (kPromptTokens + kSteps / 2);
}

// Returns the decode step beside its bytes, and the prompts' tokens.
std::vector<CaseResult> run(Engine& engine, int batch_size, double read_rate) {
  const SamplingParams sampling{.max_new_tokens = 3 * kSteps, .ignore_eos = true};
  for (int r = 0; r < batch_size; ++r) {
    std::vector<int32_t> prompt;
    for (int i = 0; i < kPromptTokens; ++i)
      prompt.push_back((i * 131 + r * 7919) % engine.model_config().vocab_size);
    engine.submit(std::move(prompt), sampling);
  }
  const auto no_sink = [](const StepOutput&) {};
  // Decode steps from the first one on that is nothing else.
  const EngineStats before_all = engine.stats();
  while (engine.stats().num_decode_tokens == before_all.num_decode_tokens) engine.step(no_sink);
  for (int i = 0; i < 8; ++i) engine.step(no_sink);
  const EngineStats before = engine.stats();
  for (int i = 0; i < kSteps; ++i) engine.step(no_sink);
  const double host_us = 1e6 * (engine.stats().decode_host_seconds - before.decode_host_seconds) / kSteps;
  const double milliseconds = 1e3 * (engine.stats().decode_seconds - before.decode_seconds) / kSteps;
  while (engine.step(no_sink)) {
  }
  const double limit = bytes_of_step(engine, batch_size) / read_rate * 1e-3;
  const double prefill_tokens =
      static_cast<double>(before.num_prefill_tokens - before_all.num_prefill_tokens);
  const double prefill_seconds = before.prefill_seconds - before_all.prefill_seconds;
  const double tokens_per_second = 1e3 * batch_size / milliseconds;
  std::printf(
      "batch %4d  %7.3f ms/step  %8.0f tokens/s  bytes bound %7.3f ms  share %5.1f %%  host %5.1f us  "
      "prefill "
      "%7.0f tokens/s\n",
      batch_size, milliseconds, tokens_per_second, limit, 100.0 * limit / milliseconds, host_us,
      prefill_tokens / prefill_seconds);
  std::fflush(stdout);
  const std::string batch = "batch " + std::to_string(batch_size);
  return {{.name = "decode, " + batch,
           .threads = 1,
           .us = 1e3 * milliseconds,
           .value = tokens_per_second,
           .unit = "tokens/s",
           .limit = 1e3 * batch_size / limit,
           .bound = "read",
           .repeats = kSteps},
          {.name = "host work of a decode step, " + batch,
           .threads = 1,
           .us = 1e3 * milliseconds,
           .value = host_us,
           .unit = "us of host",
           .limit = 0,
           .bound = {},
           .repeats = kSteps},
          {.name = "prefill, " + batch,
           .threads = 1,
           .us = 1e6 * prefill_seconds,
           .value = prefill_tokens / prefill_seconds,
           .unit = "tokens/s",
           .limit = 0,
           .bound = {},
           .repeats = 1}};
}

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: cuda_decode_bench MODEL_PATH [--no-graph] [--json FILE] [BATCH_SIZE...]\n");
    return 2;
  }
  EngineConfig config;
  config.model_path = argv[1];
  config.load_format = LoadFormat::kDummy;
  config.device = kGpu;
  config.context_length = 2048;
  config.chunked_prefill_size = 8192;
  std::vector<int> batch_sizes;
  std::string json;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--no-graph") == 0)
      config.disable_cuda_graph = true;
    else if (std::strcmp(argv[i], "--deterministic") == 0)
      config.deterministic_inference = true;
    else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc)
      json = argv[++i];
    else
      batch_sizes.push_back(std::atoi(argv[i]));
  }
  if (batch_sizes.empty()) batch_sizes = {1, 8, 32, 128, 256};
  cuda::OwnedStream stream(kGpu);
  const double read_rate = fastest_read(stream.get());
  Engine engine(config);
  std::printf("%s, fastest read %.0f GB/s, %s, graphs %s\n", engine.info().hardware.name.c_str(),
              read_rate * 1e-3, engine.info().resolution.decode->name.data(),
              config.disable_cuda_graph ? "off" : "on");
  const GpuFacts facts = gpu_facts(kGpu);
  Report report{.bench = "model",
                .machine = engine.info().hardware.name,
                .instruction_set = std::string(engine.info().resolution.decode->name),
                .threads = 1,
                .figures = {{"fastest read", 1, read_rate * 1e-3, "GB/s"},
                            {"highest SM clock", 1, static_cast<double>(facts.sm_clock), "MHz"},
                            {"memory clock", 1, static_cast<double>(facts.memory_clock), "MHz"},
                            {"CUDA of the driver", 1, facts.driver_version / 1000.0, "version"},
                            {"CUDA of the runtime", 1, facts.runtime_version / 1000.0, "version"}}};
  for (const int batch_size : batch_sizes)
    for (CaseResult& result : run(engine, batch_size, read_rate)) report.cases.push_back(std::move(result));
  if (!json.empty()) write_json(report, json);
  return 0;
}

}  // namespace
}  // namespace attend::bench

int main(int argc, char** argv) { return attend::bench::main(argc, argv); }
