#include "attend/bench/model/gpu_model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "attend/bench/cuda/gpu_probes.h"
#include "attend/bench/model/model_steps.h"
#include "attend/bench/model/prefill_breakdown.h"
#include "attend/bench/timing.h"
#include "attend/engine/engine.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/model/config/model_spec.h"

namespace attend::bench {
namespace {

constexpr int kPrefillTokens = 8192;
constexpr int kPrefillRepeats = 5;
constexpr int kWarmUpSteps = 8;
// Enough for a 99th percentile. Contexts grow by this number of tokens while they are timed.
constexpr int kSteps = 128;

// Tokens that a request generates: one from its prompt, and those of the decode steps.
constexpr int kNewTokens = 1 + kWarmUpSteps + kSteps;

// Returns the value below which the fraction `share` of the values is.
double percentile(std::vector<double> values, double share) {
  const auto rank = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<size_t>(rank)];
}

class GpuModelBench {
 public:
  GpuModelBench(const GpuModelBenchOptions& options, int prefill_tokens, double read_rate)
      : context_(options.depth),
        prefill_tokens_(prefill_tokens),
        read_rate_(read_rate),
        adapter_rank_(options.adapter_rank),
        on_case_(options.on_case),
        engine_(engine_config(options, prefill_tokens), options.progress) {
    for (int i = 0; i < options.num_adapters; ++i) {
      adapters_.push_back(fmt::format("adapter-{}", i));
      engine_.add_dummy_adapter(adapters_.back(), adapter_rank_);
    }
  }

  Report run(const std::vector<int>& batch_sizes) {
    start_report();
    add_kernels();
    for (const int batch_size : batch_sizes) {
      const double base_us = add_decode(batch_size);
      if (!adapters_.empty()) add_decode(batch_size, base_us);
    }
    const double base_us = add_prefill();
    if (!adapters_.empty()) add_adapted_prefill(base_us);
    return report_;
  }

 private:
  static EngineConfig engine_config(const GpuModelBenchOptions& options, int prefill_tokens) {
    EngineConfig config = options.engine;
    config.disable_radix_cache = true;  // every prompt is computed, also repeated ones
    const int largest = *std::max_element(options.batch_sizes.begin(), options.batch_sizes.end());
    const int longest_decode = options.depth + kNewTokens;
    config.max_running_requests = largest;
    config.context_length = std::max(prefill_tokens + 1, longest_decode);
    config.chunked_prefill_size = prefill_tokens;
    // Every request may end with a partial page.
    constexpr int kLargestPage = 256;
    config.max_total_tokens =
        std::max<int64_t>(config.context_length, int64_t{largest} * (longest_decode + kLargestPage));
    if (config.cuda_graph_bs.empty() && config.cuda_graph_max_bs == 0)
      config.cuda_graph_bs = options.batch_sizes;
    config.enable_lora = options.num_adapters > 0;
    return config;
  }

  void add(CaseResult result) {
    report_.cases.push_back(std::move(result));
    if (on_case_) on_case_(report_);
  }

  void start_report() {
    const ExecutorInfo& info = engine_.info().target();
    const GpuFacts facts = gpu_facts(info.device);
    const cuda::DeviceInfo gpu = cuda::device_info(info.device);
    report_ = {.bench = "model",
               .machine = gpu.name,
               .instruction_set = fmt::format("sm{}{}", gpu.major, gpu.minor),
               .threads = 1,
               .facts = {{"driver", facts.driver},
                         {"cuda", fmt::format("{} (driver: up to {})", facts.cuda, facts.driver_cuda)},
                         {"model", fmt::format("{}, {} layers, {}", info.model,
                                               engine_.model_spec().num_layers(), to_string(info.dtype))},
                         {"attention", fmt::format("{}, page size {}, K/V in {}",
                                                   info.resolution.decode->name, info.resolution.page_size,
                                                   kernels::cache_dtype_name(info.kv_cache_dtype))},
                         {"graphs", info.graph_sizes.empty()
                                        ? std::string("off")
                                        : fmt::format("{} batch sizes, {:.1f} MB", info.graph_sizes.size(),
                                                      1e-6 * static_cast<double>(info.graph_bytes))}},
               .figures = {{"fastest read", 1, read_rate_ * 1e-3, "GB/s"},
                           {"highest SM clock", 1, 1.0 * facts.sm_clock, "MHz"},
                           {"memory clock", 1, 1.0 * facts.memory_clock, "MHz"}}};
  }

  void add_kernels() {
    engine_.submit(random_prompt(prefill_tokens_ - 1, engine_.model_spec().vocab_size),
                   {.max_new_tokens = 2, .ignore_eos = true});
    while (engine_.step(require_token)) {
    }
    report_.kernels = choice_names(*choices_);
    choices_.reset();
  }

  // Returns the time of a step. `base_us`: the time without adapters; 0: the requests have none.
  double add_decode(int batch_size, double base_us = 0.0) {
    const bool adapted = base_us > 0.0;
    // Decode steps read the same bytes whether or not their prompts were computed. Computing the prompts of
    // large batches with long contexts would need a minute.
    for (int i = 0; i < batch_size; ++i)
      engine_.submit({.prompt = random_prompt(context_, engine_.model_spec().vocab_size),
                      .params = {.max_new_tokens = kNewTokens, .ignore_eos = true},
                      .adapter = adapted ? adapters_[static_cast<size_t>(i) % adapters_.size()] : "",
                      .num_skipped = context_ - 1});
    // The first decode-only step is the one with all requests running.
    const int64_t decodes_before = engine_.stats().num_decode_tokens;
    while (engine_.stats().num_decode_tokens == decodes_before) engine_.step(require_token);
    for (int i = 1; i < kWarmUpSteps; ++i) engine_.step(require_token);
    std::vector<double> host_us;
    const double seconds = measure_seconds([&] {
      for (int i = 0; i < kSteps; ++i) {
        const double host_before = engine_.stats().decode_host_seconds;
        engine_.step(require_token);
        host_us.push_back(1e6 * (engine_.stats().decode_host_seconds - host_before));
      }
    });
    while (engine_.step(require_token)) {
    }
    const double step_us = 1e6 * seconds / kSteps;
    if (adapted) {
      add({.name = fmt::format("decode, batch {}{}", batch_size, describe_adapters()),
           .threads = 1,
           .us = step_us,
           .value = 1e6 * batch_size / step_us,
           .unit = "tokens/s",
           .limit = 1e6 * batch_size / base_us,
           .bound = fmt::format("without adapters {:.0f} us", base_us),
           .repeats = kSteps});
      return step_us;
    }
    const double limit_us =
        decode_bytes(engine_, batch_size, context_ + kWarmUpSteps + kSteps / 2) / read_rate_;
    add({.name = fmt::format("decode, batch {}", batch_size),
         .threads = 1,
         .us = step_us,
         .value = 1e6 * batch_size / step_us,
         .unit = "tokens/s",
         .limit = 1e6 * batch_size / limit_us,
         .bound = fmt::format("read in {:.0f} us{}", limit_us, describe_touched(batch_size)),
         .repeats = kSteps});
    // With overlap scheduling, the device does not wait for host work.
    if (engine_.info().overlap_schedule) return step_us;
    for (const auto& [name, share] : {std::pair{"median", 0.5}, {"99th percentile", 0.99}})
      add({.name = fmt::format("host work, {}, batch {}", name, batch_size),
           .threads = 1,
           .us = step_us,
           .value = percentile(host_us, share),
           .unit = "us of host",
           .limit = 0,
           .bound = {},
           .repeats = kSteps});
    return step_us;
  }

  std::string describe_adapters() const {
    return fmt::format(", {} adapters of rank {}", adapters_.size(), adapter_rank_);
  }

  double time_prefill(const std::string& adapter) {
    engine_.submit({.prompt = random_prompt(prefill_tokens_, engine_.model_spec().vocab_size),
                    .params = {.max_new_tokens = 1, .ignore_eos = true},
                    .adapter = adapter});
    return 1e6 * measure_seconds([&] { engine_.step(require_token); });
  }

  // Returns, for example, ", 51.6 experts a layer".
  std::string describe_touched(int batch_size) const {
    const auto touched = touched_experts(engine_.model_spec(), batch_size);
    return touched ? fmt::format(", {:.1f} experts a layer", *touched) : std::string();
  }

  // The prompt and its parts alternate, since the clock under tensor-core load changes with time.
  double add_prefill() {
    std::vector<double> step_times, products, attention, recurrent;
    for (int i = 0; i <= kPrefillRepeats; ++i) {
      step_times.push_back(time_prefill(""));
      const PrefillBreakdown parts = time_prefill_breakdown(engine_, prefill_tokens_);
      products.push_back(parts.products_us);
      attention.push_back(parts.attention_us);
      recurrent.push_back(parts.recurrent_us);
    }
    // The first runs are warm-up.
    for (std::vector<double>* const times : {&step_times, &products, &attention, &recurrent})
      times->erase(times->begin());
    const double step_us = median(step_times);
    const PrefillBreakdown parts{.products_us = median(products),
                                 .attention_us = median(attention),
                                 .recurrent_us = median(recurrent)};
    std::string bound =
        fmt::format("products {:.0f} + attention {:.0f}", parts.products_us, parts.attention_us);
    if (parts.recurrent_us > 0.0) bound += fmt::format(" + recurrent {:.0f}", parts.recurrent_us);
    add({.name = fmt::format("prefill of {} tokens", prefill_tokens_),
         .threads = 1,
         .us = step_us,
         .value = 1e6 * prefill_tokens_ / step_us,
         .unit = "tokens/s",
         .limit = 1e6 * prefill_tokens_ / parts.total_us(),
         .bound = bound + " us",
         .repeats = kPrefillRepeats});
    return step_us;
  }

  void add_adapted_prefill(double base_us) {
    time_prefill(adapters_.front());
    std::vector<double> times;
    for (int i = 0; i < kPrefillRepeats; ++i) times.push_back(time_prefill(adapters_.front()));
    const double step_us = median(times);
    add({.name = fmt::format("prefill of {} tokens, an adapter of rank {}", prefill_tokens_, adapter_rank_),
         .threads = 1,
         .us = step_us,
         .value = 1e6 * prefill_tokens_ / step_us,
         .unit = "tokens/s",
         .limit = 1e6 * prefill_tokens_ / base_us,
         .bound = fmt::format("without adapters {:.0f} us", base_us),
         .repeats = kPrefillRepeats});
  }

  int context_;  // of a prompt before its decode steps
  int prefill_tokens_;
  double read_rate_;  // bytes per microsecond
  int adapter_rank_;
  std::vector<std::string> adapters_;  // names
  const std::function<void(const Report&)> on_case_;
  // Collects kernel choices while nothing is timed; choices of graphs are made when the engine is created.
  std::optional<kernels::KernelChoices> choices_{std::in_place};
  Engine engine_;
  Report report_;
};

}  // namespace

Report bench_model_on_gpu(const GpuModelBenchOptions& options) {
  require(!options.batch_sizes.empty(), "--batch-sizes: at least one");
  require(options.depth >= 1, "--depth ", options.depth, ": on a GPU at least 1");
  const EngineConfig& engine = options.engine;
  const int longest = (engine.model ? *engine.model : read_config(engine.model_path)).max_context_len();
  const int prefill_tokens = std::min(kPrefillTokens, longest - 1);
  require(options.depth <= longest - kNewTokens, "--depth ", options.depth,
          ": the model's maximum length is ", longest, ", ", kNewTokens,
          " of which are reserved for generated tokens");
  for (const int batch_size : options.batch_sizes) {
    require(batch_size >= 1 && batch_size < kPrefillTokens, "--batch-sizes ", batch_size, ": 1 to ",
            kPrefillTokens - 1);
    require(batch_size < prefill_tokens, "--batch-sizes ", batch_size, ": the model's maximum length is ",
            longest, ", and so does a step: fewer than ", prefill_tokens);
  }
  cuda::device_info(options.engine.device);  // throws if the GPU does not exist
  double read_rate = 0.0;
  {
    cuda::OwnedStream stream(options.engine.device);
    read_rate = fastest_read(stream.get());
  }
  return GpuModelBench(options, prefill_tokens, read_rate).run(options.batch_sizes);
}

}  // namespace attend::bench
