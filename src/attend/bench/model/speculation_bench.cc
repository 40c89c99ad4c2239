#include "attend/bench/model/speculation_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/bench/model/model_steps.h"
#include "attend/bench/timing.h"
#include "attend/engine/engine.h"
#include "attend/kernels/attention/cpu/attention.h"
#include "attend/tensor/cuda.h"

namespace attend::bench {
namespace {

constexpr int kUntimedSteps = 4;
constexpr int kMaxBatch = 1024;

// Means of the steps of one repetition, in microseconds.
struct StepTimes {
  double step = 0.0, device = 0.0, draft = 0.0, host = 0.0;
  double tokens = 0.0;  // per request and step
};

// Requests of one engine that decode until they are aborted.
class DecodeLoop {
 public:
  DecodeLoop(const EngineConfig& config, const EngineProgress& progress) : engine_(config, progress) {}

  void begin(int batch_size, int depth) {
    for (int i = 0; i < batch_size; ++i)
      ids_.push_back(engine_.submit(
          {.prompt = random_prompt(depth, engine_.model_spec().vocab_size),
           .params = {.max_new_tokens = engine_.info().context_length - depth, .ignore_eos = true},
           .num_skipped = depth - 1}));
    const int64_t before = engine_.stats().num_decode_tokens;
    while (engine_.stats().num_decode_tokens == before) engine_.step(require_token);
    for (int i = 0; i < kUntimedSteps; ++i) engine_.step(require_token);
  }

  StepTimes run(int num_steps) {
    const EngineStats before = engine_.stats();
    const double seconds = measure_seconds([&] {
      for (int i = 0; i < num_steps; ++i) engine_.step(require_token);
    });
    const EngineStats& after = engine_.stats();
    const double us = 1e6 / num_steps;
    return {.step = seconds * us,
            .device = (after.decode_device_seconds - before.decode_device_seconds) * us,
            .draft = (after.draft_seconds - before.draft_seconds) * us,
            .host = (after.decode_host_seconds - before.decode_host_seconds) * us,
            .tokens = static_cast<double>(after.num_generated_tokens - before.num_generated_tokens) /
                      (1.0 * num_steps * static_cast<double>(ids_.size()))};
  }

  void end() {
    for (const RequestId id : ids_) engine_.abort(id, [](const RequestOutput&) {});
    ids_.clear();
    while (engine_.step([](const RequestOutput&) {})) {
    }
  }

  const Engine& engine() const { return engine_; }

 private:
  Engine engine_;
  std::vector<RequestId> ids_;
};

class SpeculationBench {
 public:
  explicit SpeculationBench(const SpeculationBenchOptions& options)
      : options_(options),
        plain_(plain_config(options), options.progress),
        drafting_(drafting_config(options), options.progress) {}

  Report run() {
    start_report();
    for (const int batch_size : options_.batch_sizes) add_cases(batch_size);
    return report_;
  }

  // Room for the tokens of all steps.
  static int context_length(const SpeculationBenchOptions& options) {
    const SpeculativeOptions& speculation = options.engine.speculation;
    const int num_steps = 1 + kUntimedSteps + options.repetitions * options.steps_per_run;
    const double most =
        speculation.synthetic_accept_length > 0.0
            ? speculation.synthetic_accept_length
            : std::max({kDefaultTokens, speculation.num_steps + 1, speculation.num_draft_tokens});
    return options.depth + static_cast<int>(std::ceil(most * num_steps)) + 2 * kMaxVerifiedTokens;
  }

 private:
  // Most tokens that a step verifies: of any option, and by default.
  static constexpr int kMaxVerifiedTokens = 64, kDefaultTokens = 6;
  static constexpr int kMinStepTokens = 512;

  static EngineConfig plain_config(const SpeculationBenchOptions& options) {
    EngineConfig config = drafting_config(options);
    config.speculation = {};
    config.draft_model.reset();
    return config;
  }

  static EngineConfig drafting_config(const SpeculationBenchOptions& options) {
    EngineConfig config = options.engine;
    SpeculativeOptions& speculation = config.speculation;
    const int largest = *std::ranges::max_element(options.batch_sizes);
    if (speculation.disable_by_batch_size == 0) speculation.disable_by_batch_size = largest;
    config.disable_radix_cache = true;  // accepted tokens are not those whose K/V are stored
    config.max_running_requests = largest;
    config.context_length = context_length(options);
    config.chunked_prefill_size = std::max(kMinStepTokens, largest * kMaxVerifiedTokens);
    // Every request may end with a partial page.
    constexpr int kLargestPage = 256;
    config.max_total_tokens = int64_t{largest} * (config.context_length + kLargestPage);
    if (config.cuda_graph_bs.empty() && config.cuda_graph_max_bs == 0)
      config.cuda_graph_bs = options.batch_sizes;
    return config;
  }

  void start_report() {
    const ExecutorInfo& target = drafting_.engine().info().target();
    const bool on_gpu = target.device.type == DeviceType::kCuda;
    report_ = {
        .bench = "model",
        .machine = target.hardware.name,
        .instruction_set = on_gpu ? std::string() : std::string(to_string(kernels::cpu::attention_isa())),
        .threads = on_gpu ? 1 : num_threads(),
        .facts = {{"model", describe(target)},
                  {"draft model", describe(drafting_.engine().info().executors.back())},
                  {"attention", fmt::format("{}, page size {}", target.resolution.decode->name,
                                            target.resolution.page_size)},
                  {"context before the steps", fmt::format("{} tokens", options_.depth)}}};
    if (!on_gpu) return;
    const cuda::DeviceInfo gpu = cuda::device_info(target.device);
    report_.machine = gpu.name;
    report_.instruction_set = fmt::format("sm{}{}", gpu.major, gpu.minor);
  }

  static std::string describe(const ExecutorInfo& info) {
    return fmt::format("{}, {:.2f} GB of weights, {}", info.model,
                       1e-9 * static_cast<double>(info.weight_bytes), to_string(info.dtype));
  }

  void add(int batch_size, const std::string& name, double us, double value, const char* unit,
           double limit = 0.0, std::string bound = {}) {
    report_.cases.push_back({.name = fmt::format("{}, batch {}", name, batch_size),
                             .threads = report_.threads,
                             .us = us,
                             .value = value,
                             .unit = unit,
                             .limit = limit,
                             .bound = std::move(bound),
                             .repeats = options_.repetitions * options_.steps_per_run});
    if (options_.on_case) options_.on_case(report_);
  }

  void add_cases(int batch_size) {
    plain_.begin(batch_size, options_.depth);
    drafting_.begin(batch_size, options_.depth);
    std::vector<double> decode, round, verify, verify_decodes, draft, draft_decodes, host, speedup, tokens;
    for (int i = 0; i < options_.repetitions; ++i) {
      const StepTimes plain = plain_.run(options_.steps_per_run);
      const StepTimes drafting = drafting_.run(options_.steps_per_run);
      decode.push_back(plain.step);
      round.push_back(drafting.step);
      verify.push_back(drafting.device);
      verify_decodes.push_back(drafting.device / plain.step);
      draft.push_back(drafting.draft);
      draft_decodes.push_back(drafting.draft / plain.step);
      host.push_back(drafting.host);
      tokens.push_back(drafting.tokens);
      speedup.push_back(drafting.tokens * plain.step / drafting.step);
    }
    plain_.end();
    drafting_.end();
    const SpeculativeOptions& speculation = drafting_.engine().info().speculation;
    const auto rate = [&](double us) { return 1e6 * batch_size / us; };
    const double plain_rate = rate(median(decode));
    add(batch_size, "decode", median(decode), plain_rate, "tokens/s");
    add(batch_size, fmt::format("verify of {} tokens", speculation.num_draft_tokens), median(verify),
        median(verify_decodes), "decodes");
    add(batch_size, fmt::format("draft of {} tokens", speculation.num_steps), median(draft),
        median(draft_decodes), "decodes");
    add(batch_size, "host work of a round", median(round), median(host), "us of host");
    const auto [slowest, fastest] = std::ranges::minmax(speedup);
    add(batch_size, fmt::format("round of {:.2f} tokens", mean(tokens)), median(round),
        median(speedup) * plain_rate, "tokens/s", plain_rate,
        fmt::format("plain decoding, {:.2f} to {:.2f} times", slowest, fastest));
  }

  const SpeculationBenchOptions options_;
  DecodeLoop plain_, drafting_;
  Report report_;
};

void check(const SpeculationBenchOptions& options) {
  const EngineConfig& engine = options.engine;
  require(engine.speculation.algorithm && has_draft_model(*engine.speculation.algorithm),
          "--speculative-algorithm: expected STANDALONE, EAGLE, EAGLE3 or NEXTN, which have a draft model to "
          "time");
  require(!options.batch_sizes.empty(), "--batch-sizes: at least one");
  const int longest = (engine.model ? *engine.model : read_config(engine.model_path)).max_context_len();
  for (const int batch_size : options.batch_sizes)
    require(batch_size >= 1 && batch_size <= kMaxBatch, "--batch-sizes ", batch_size, ": 1 to ", kMaxBatch);
  const int room = longest - SpeculationBench::context_length(options) + options.depth;
  require(options.depth >= 1 && options.depth <= room, "--depth ", options.depth, ": 1 to ",
          std::max(room, 1), ": the model's maximum length is ", longest, ", of which ", longest - room,
          " are for the timed steps");
}

}  // namespace

Report bench_speculation(const SpeculationBenchOptions& options) {
  check(options);
  return SpeculationBench(options).run();
}

}  // namespace attend::bench
