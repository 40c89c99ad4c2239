#include "attend/bench/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "attend/base/parallel.h"
#include "attend/bench/model_steps.h"
#include "attend/bench/probes.h"
#include "attend/bench/timing.h"
#include "attend/engine/engine.h"
#include "attend/kernels/attention/cpu/attention.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/tensor/arena.h"

namespace attend::bench {
namespace {

// How long the last step of the prompt and each decode step of one request took.
struct RequestTimes {
  double last_prompt_seconds = 0;
  std::vector<double> decode_seconds;
};

RequestTimes run_request(Engine& engine, int prompt_tokens, int new_tokens) {
  engine.submit(random_prompt(prompt_tokens, engine.model_spec().vocab_size),
                {.max_new_tokens = new_tokens, .ignore_eos = true});
  RequestTimes times;
  int num_outputs = 0;
  while (true) {
    const int outputs_before = num_outputs;
    bool more = false;
    const double seconds = seconds_of([&] {
      more = engine.step([&](const RequestOutput& output) {
        require_token(output);
        ++num_outputs;
      });
    });
    if (!more) return times;
    if (outputs_before == 0) times.last_prompt_seconds = seconds;
    if (outputs_before > 0) times.decode_seconds.push_back(seconds);
  }
}

// Requests and decode steps that the host's own work is timed with.
constexpr int kHostRequests = 16, kHostSteps = 32;

class ModelBench {
 public:
  explicit ModelBench(const ModelBenchOptions& options)
      : options_(options), engine_(engine_config(options), options.progress), threads_(num_threads()) {
    vectors_ = best_vectors(threads_, engine_.model_spec().dtype);
    const auto bytes = static_cast<size_t>(multiplied_bytes(engine_));
    Arena arena(bytes, "bench: a buffer of the weights' size to read");
    probe_ = arena.allocate({static_cast<int64_t>(bytes)}, DType::kU8);
    std::fill_n(static_cast<std::byte*>(probe_.view().data), bytes, std::byte{1});
  }

  Report run() {
    report_ = {.bench = "model",
               .machine = engine_.info().hardware.name,
               .instruction_set = std::string(to_string(kernels::cpu::attention_isa())),
               .threads = threads_};
    {
      const kernels::KernelChoices choices;
      run_request(engine_, options_.prompt_tokens, 2);  // warm-up
      report_.kernels = names_of(choices);
    }
    for (int depth : options_.depths) {
      require_own_step(depth);
      const RequestTimes deep = run_request(engine_, depth + options_.prompt_tokens, options_.new_tokens + 1);
      add_prompt(depth, deep.last_prompt_seconds);
      if (depth == 0)
        add_generation(depth, 1, run_request(engine_, 1, options_.new_tokens + 1).decode_seconds);
      else
        add_generation(depth, depth + options_.prompt_tokens, deep.decode_seconds);
    }
    add_host_work();
    return report_;
  }

 private:
  static EngineConfig engine_config(const ModelBenchOptions& options) {
    EngineConfig config = options.engine;
    config.disable_radix_cache = true;  // every prompt is computed, however often it comes
    const int deepest = *std::max_element(options.depths.begin(), options.depths.end());
    config.context_length =
        std::max(deepest + options.prompt_tokens + options.new_tokens + 1, kHostSteps + 2);
    config.max_total_tokens = std::max(config.context_length, kHostRequests * 2 * kHostSteps);
    config.max_running_requests = kHostRequests;
    config.chunked_prefill_size = options.prompt_tokens;
    return config;
  }

  // Behind a depth the timed tokens are a step by themselves only if steps, which end with pages, can be so
  // long.
  void require_own_step(int depth) const {
    const int page_size = engine_.info().resolution.page_size, tokens = options_.prompt_tokens;
    require(depth == 0 || (tokens % page_size == 0 && tokens >= kHostRequests), "--prompt-tokens ", tokens,
            ": with --depth ", depth, " a multiple of the page size, ", page_size, ", and at least ",
            kHostRequests);
  }

  std::string suffix(int depth) const { return depth == 0 ? "" : fmt::format(" @ d{}", depth); }

  void add_prompt(int depth, double seconds) {
    // Some ticks of the system's long: it may wake a thread on the core of the one that waits for it, and
    // move it later.
    constexpr int kTries = 20;
    double peak = 0;
    for (int i = 0; i < kTries; ++i) peak = std::max(peak, operations_per_second(vectors_, threads_));
    const double limit_seconds = prompt_operations(engine_, depth, options_.prompt_tokens) / peak;
    report_.cases.push_back({.name = fmt::format("pp{}{}", options_.prompt_tokens, suffix(depth)),
                             .threads = threads_,
                             .us = seconds * 1e6,
                             .value = options_.prompt_tokens / seconds,
                             .unit = "tokens/s",
                             .limit = options_.prompt_tokens / limit_seconds,
                             .bound = std::string(to_string(vectors_)),
                             .repeats = 1});
  }

  void add_generation(int depth, int context, const std::vector<double>& seconds) {
    std::vector<std::vector<double>> rates(read_ways().size());
    for (int i = 0; i < 3; ++i)
      for (size_t way = 0; way < rates.size(); ++way)
        rates[way].push_back(read_bytes_per_second(
            {static_cast<const std::byte*>(probe_.view().data), probe_.view().num_bytes()}, threads_,
            read_ways()[way]));
    const FastestWay fastest = fastest_way(rates);
    const std::string what =
        fmt::format("read {:.2f} GB", 1e-9 * static_cast<double>(probe_.view().num_bytes()));
    for (size_t way = 0; way < rates.size(); ++way)
      report_.figures.push_back({what + suffix(depth) + ", " + to_string(read_ways()[way]), threads_,
                                 1e-9 * median(rates[way]), "GB/s"});
    const double step_seconds = median(seconds);
    const double bytes = decode_bytes(engine_, 1, context + options_.new_tokens / 2);
    report_.cases.push_back({.name = fmt::format("tg{}{}", options_.new_tokens, suffix(depth)),
                             .threads = threads_,
                             .us = step_seconds * 1e6,
                             .value = 1 / step_seconds,
                             .unit = "tokens/s",
                             .limit = fastest.rate / bytes,
                             .bound = fmt::format("read {:.2f} GB", 1e-9 * bytes),
                             .repeats = static_cast<int>(seconds.size())});
  }

  // What a decode step costs beyond plan, model and sampling.
  void add_host_work() {
    for (int i = 0; i < kHostRequests; ++i)
      engine_.submit(random_prompt(1, engine_.model_spec().vocab_size),
                     {.max_new_tokens = kHostSteps + 1, .ignore_eos = true});
    const EngineStats before = engine_.stats();
    while (engine_.step(require_token)) {
    }
    const EngineStats& after = engine_.stats();
    report_.cases.push_back(
        {.name = fmt::format("host work of a step, {} requests", kHostRequests),
         .threads = threads_,
         .us = 1e6 * (after.decode_seconds - before.decode_seconds) / kHostSteps,
         .value = 1e6 * (after.decode_host_seconds - before.decode_host_seconds) / kHostSteps,
         .unit = "us of host",
         .limit = 0,
         .bound = {},
         .repeats = kHostSteps});
  }

  const ModelBenchOptions options_;
  Engine engine_;
  const int threads_;
  Arithmetic vectors_ = Arithmetic::kPortableF32;
  Tensor probe_;
  Report report_;
};

}  // namespace

Report bench_model(const ModelBenchOptions& options) {
  require(options.prompt_tokens >= 1 && options.new_tokens >= 1, "prompt tokens ", options.prompt_tokens,
          ", new tokens ", options.new_tokens, ": at least 1");
  require(!options.depths.empty(), "--depth: at least one");
  const int deepest = std::numeric_limits<int>::max() - options.prompt_tokens - options.new_tokens - 1;
  for (int depth : options.depths)
    require(depth >= 0 && depth <= deepest && depth % options.prompt_tokens == 0, "--depth ", depth,
            ": a multiple of ", options.prompt_tokens, " up to ", deepest);
  return ModelBench(options).run();
}

}  // namespace attend::bench
