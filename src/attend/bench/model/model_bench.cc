#include "attend/bench/model/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/bench/model/model_steps.h"
#include "attend/bench/probes.h"
#include "attend/bench/timing.h"
#include "attend/engine/engine.h"
#include "attend/kernels/attention/cpu/attention.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/model/config/model_spec.h"
#include "attend/tensor/arena.h"

namespace attend::bench {
namespace {

// Returns the seconds of each step of a request with `num_prompt` tokens, the first `num_skipped` of which
// are not computed.
std::vector<double> time_steps(Engine& engine, int num_prompt, int num_skipped, int num_generated) {
  engine.submit({.prompt = random_prompt(num_prompt, engine.model_spec().vocab_size),
                 .params = {.max_new_tokens = num_generated, .ignore_eos = true},
                 .num_skipped = num_skipped});
  std::vector<double> seconds;
  for (bool more = true; more;) {
    const double took = measure_seconds([&] { more = engine.step(require_token); });
    if (more) seconds.push_back(took);
  }
  return seconds;
}

int largest(const std::vector<int>& numbers) {
  return numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end());
}

// Requests and decode steps for timing the host's own work.
constexpr int kHostRequests = 16, kHostSteps = 32;
// Minimum chunk of untimed prompts.
constexpr int kChunk = 512;

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
               .machine = engine_.info().target().hardware.name,
               .instruction_set = std::string(to_string(kernels::cpu::attention_isa())),
               .threads = threads_};
    warm_up();
    for (const int depth : options_.depths) {
      for (const int num_tokens : options_.prompt_tokens)
        if (num_tokens > 0) add_prompt(depth, num_tokens);
      for (const int num_tokens : options_.new_tokens)
        if (num_tokens > 0) add_generation(depth, num_tokens);
    }
    add_host_work();
    return report_;
  }

 private:
  // Writes K/V to the pages that the timed tokens read, and determines the kernels that will be timed.
  void warm_up() {
    const int deepest = largest(options_.depths);
    if (deepest > 0) time_steps(engine_, deepest, 0, 1);
    const kernels::KernelChoices choices;
    for (const int num_tokens : options_.prompt_tokens)
      if (num_tokens > 0) time_steps(engine_, deepest + num_tokens, deepest, 1);
    if (largest(options_.new_tokens) > 0) time_decode_steps(deepest, 1);
    report_.kernels = choice_names(choices);
  }

  static EngineConfig engine_config(const ModelBenchOptions& options) {
    EngineConfig config = options.engine;
    config.disable_radix_cache = true;  // every prompt is computed, also repeated ones
    const int deepest = largest(options.depths), prompt = largest(options.prompt_tokens);
    // Each request ends with one more token.
    config.context_length = std::max(
        {deepest + prompt + 1, std::max(1, deepest) + largest(options.new_tokens) + 1, kHostSteps + 2});
    config.max_total_tokens = std::max(config.context_length, kHostRequests * 2 * kHostSteps);
    config.max_running_requests = kHostRequests;
    config.chunked_prefill_size = std::max(prompt, kChunk);  // a timed prompt is one step
    return config;
  }

  std::string suffix(int depth) const { return depth == 0 ? "" : fmt::format(" @ d{}", depth); }

  void add(CaseResult result) {
    report_.cases.push_back(std::move(result));
    if (options_.on_case) options_.on_case(report_);
  }

  void add_prompt(int depth, int num_tokens) {
    std::vector<double> seconds;
    for (int i = 0; i < options_.repetitions; ++i) {
      const std::vector<double> steps = time_steps(engine_, depth + num_tokens, depth, 1);
      ensure(steps.size() == 1, "a prompt of ", num_tokens, " tokens needed ", steps.size(), " steps");
      seconds.push_back(steps.front());
    }
    // Several scheduler ticks long: the system may wake a thread on the core of the waiting thread and
    // migrate it later.
    constexpr int kTries = 20;
    double peak = 0;
    for (int i = 0; i < kTries; ++i) peak = std::max(peak, operations_per_second(vectors_, threads_));
    const double limit_seconds = prompt_operations(engine_, depth, num_tokens) / peak;
    add({.name = fmt::format("pp{}{}", num_tokens, suffix(depth)),
         .threads = threads_,
         .us = median(seconds) * 1e6,
         .value = num_tokens / mean(seconds),
         .unit = "tokens/s",
         .limit = num_tokens / limit_seconds,
         .bound = std::string(to_string(vectors_)),
         .repeats = options_.repetitions});
  }

  std::vector<double> time_decode_steps(int depth, int num_tokens) {
    const int num_prompt = std::max(1, depth);
    std::vector<double> seconds = time_steps(engine_, num_prompt, num_prompt - 1, num_tokens + 1);
    seconds.erase(seconds.begin());  // step of the prompt's last token
    ensure(static_cast<int>(seconds.size()) == num_tokens, seconds.size(), " decode steps of ", num_tokens);
    return seconds;
  }

  void add_generation(int depth, int num_tokens) {
    std::vector<double> seconds;
    for (int i = 0; i < options_.repetitions; ++i) {
      const std::vector<double> steps = time_decode_steps(depth, num_tokens);
      seconds.insert(seconds.end(), steps.begin(), steps.end());
    }
    std::vector<std::vector<double>> rates(read_methods().size());
    for (int i = 0; i < 3; ++i)
      for (size_t way = 0; way < rates.size(); ++way)
        rates[way].push_back(read_bytes_per_second(
            {static_cast<const std::byte*>(probe_.view().data), probe_.view().num_bytes()}, threads_,
            read_methods()[way]));
    const FastestReadMethod fastest = fastest_read_method(rates);
    const std::string what =
        fmt::format("read {:.3g} GB", 1e-9 * static_cast<double>(probe_.view().num_bytes()));
    for (size_t way = 0; way < rates.size(); ++way)
      report_.figures.push_back({what + suffix(depth) + ", " + to_string(read_methods()[way]), threads_,
                                 1e-9 * median(rates[way]), "GB/s"});
    const double bytes = decode_bytes(engine_, 1, std::max(1, depth) + num_tokens / 2);
    add({.name = fmt::format("tg{}{}", num_tokens, suffix(depth)),
         .threads = threads_,
         .us = median(seconds) * 1e6,
         .value = 1 / mean(seconds),
         .unit = "tokens/s",
         .limit = fastest.rate / bytes,
         .bound = fmt::format("read {:.3g} GB", 1e-9 * bytes),
         .repeats = static_cast<int>(seconds.size())});
  }

  // Time of a decode step excluding plan, model and sampling.
  void add_host_work() {
    for (int i = 0; i < kHostRequests; ++i)
      engine_.submit(random_prompt(1, engine_.model_spec().vocab_size),
                     {.max_new_tokens = kHostSteps + 1, .ignore_eos = true});
    const EngineStats before = engine_.stats();
    while (engine_.step(require_token)) {
    }
    const EngineStats& after = engine_.stats();
    add({.name = fmt::format("host work of a step, {} requests", kHostRequests),
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

// `flag`: flag with value `number`. The last token of a request needs a position too, as the engine counts.
void require_room(const char* flag, int number, int64_t most, int longest) {
  require(number >= 0 && number <= most, flag, " ", number, ": 0 to ", std::max<int64_t>(most, 0),
          "; the model's maximum length is ", longest);
}

void check(const ModelBenchOptions& options) {
  require(!options.depths.empty(), "--depth: at least one number");
  require(options.repetitions >= 1, "--repetitions ", options.repetitions, ": at least 1");
  const EngineConfig& engine = options.engine;
  const int longest = (engine.model ? *engine.model : read_config(engine.model_path)).max_context_len();
  for (const int number : options.prompt_tokens)
    require_room("--prompt-tokens", number, longest - 1, longest);
  for (const int number : options.new_tokens) require_room("--new-tokens", number, longest - 2, longest);
  const int num_prompt = largest(options.prompt_tokens), num_new = largest(options.new_tokens);
  require(num_prompt > 0 || num_new > 0, "--prompt-tokens 0 and --new-tokens 0: nothing to time");
  for (const int depth : options.depths)
    require(depth >= 0 && depth < longest - std::max(num_prompt, num_new), "--depth ", depth, ": 0 to ",
            longest - std::max(num_prompt, num_new) - 1, ": the model's maximum length is ", longest,
            ", of which ", std::max(num_prompt, num_new), " are for the timed tokens and one for the next");
}

}  // namespace

Report bench_model(const ModelBenchOptions& options) {
  check(options);
  return ModelBench(options).run();
}

}  // namespace attend::bench
