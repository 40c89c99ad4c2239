// Command attend bench: measures attention, models and serving, and compares them with the machine's limits.

#include <functional>
#include <memory>
#include <utility>

#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/parallel.h"
#include "attend/bench/attention/attention_bench.h"
#include "attend/bench/model/gpu_model_bench.h"
#include "attend/bench/model/model_bench.h"
#include "attend/bench/model/speculation_bench.h"
#include "attend/cli/commands/commands.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/bench_options.h"
#include "attend/cli/options/engine_options.h"
#include "attend/cli/options/flags.h"
#include "attend/cli/progress_bar.h"
#include "attend/cli/standard_streams.h"

namespace attend::cli {
namespace {

struct BenchOptions {
  EngineOptions engine;
  std::string filter;
  ModelChoice model;
  std::vector<int> prompt_tokens = bench::ModelBenchOptions().prompt_tokens;
  std::vector<int> new_tokens = bench::ModelBenchOptions().new_tokens;
  std::vector<int> depths = bench::ModelBenchOptions().depths;
  int repetitions = bench::ModelBenchOptions().repetitions;
  std::vector<int> batch_sizes = bench::GpuModelBenchOptions().batch_sizes;
  int num_adapters = bench::GpuModelBenchOptions().num_adapters;
  int adapter_rank = bench::GpuModelBenchOptions().adapter_rank;
  double accept_length = 0.0;
  std::string json;
};

// Prints cases and writes them to --json as they are measured, so that an interrupted bench keeps them.
class BenchOutput {
 public:
  explicit BenchOutput(std::string json) : json_(std::move(json)) {}

  void show(const bench::Report& report) {
    write(report);
    bars_.clear();
    printer_.show(report);
    flush_out();
  }
  void finish(const bench::Report& report) {
    bars_.clear();
    printer_.finish(report);
    write(report);
  }
  EngineBars& bars() { return bars_; }

 private:
  void write(const bench::Report& report) const {
    if (!json_.empty()) write_json(report, json_);
  }

  EngineBars bars_;
  bench::ReportPrinter printer_;
  std::string json_;
};

int run_attention(const CLI::App&, const BenchOptions& options) {
  require(options.engine.device == "auto" || options.engine.device == "cpu", "--device ",
          options.engine.device,
          ": expected auto or cpu; cuda_attention_bench times attention on a GPU, "
          "built with -DATTEND_BENCHMARKS=ON");
  set_threads(options.engine.threads);
  BenchOutput output(options.json);
  output.finish(bench::bench_attention(
      {.filter = options.filter, .on_case = [&](const bench::Report& report) { output.show(report); }}));
  return 0;
}

// Rejects flags of the bench of the other kind of device.
void reject_flag(const CLI::App& app, const char* flag, std::string_view for_whom, Device device) {
  if (given(app, flag))
    fail(ErrorCode::kUnsupported, flag, ": only for ", for_whom, "; the device is ", device);
}

using OnCase = std::function<void(const bench::Report&)>;

// Returns the depth of a bench that times one.
int one_depth(const CLI::App& app, const BenchOptions& options, std::string_view where, int missing) {
  if (!given(app, "--depth")) return missing;
  require(options.depths.size() == 1, "--depth: expected one number ", where, ", got ",
          options.depths.size());
  return options.depths.front();
}

bench::Report bench_speculation(const CLI::App& app, const BenchOptions& options, EngineConfig engine,
                                EngineBars& bars, const OnCase& on_case) {
  for (const char* flag : {"--prompt-tokens", "--new-tokens"})
    require(!given(app, flag), flag, ": no effect with --speculative-algorithm");
  engine.speculation.synthetic_accept_length = options.accept_length;
  bench::SpeculationBenchOptions speculation{
      .engine = engine, .progress = bars.progress(), .on_case = on_case};
  if (given(app, "--batch-sizes")) speculation.batch_sizes = options.batch_sizes;
  if (given(app, "--repetitions")) speculation.repetitions = options.repetitions;
  speculation.depth = one_depth(app, options, "with --speculative-algorithm", speculation.depth);
  return bench::bench_speculation(speculation);
}

bench::Report bench_model(const CLI::App& app, const BenchOptions& options, const EngineConfig& engine,
                          EngineBars& bars, const OnCase& on_case) {
  if (engine.speculation.algorithm) return bench_speculation(app, options, engine, bars, on_case);
  require(!given(app, "--speculative-accept-length"),
          "--speculative-accept-length: requires --speculative-algorithm");
  if (engine.device.type == DeviceType::kCuda) {
    for (const char* flag : {"--prompt-tokens", "--new-tokens", "--repetitions"})
      reject_flag(app, flag, "CPUs", engine.device);
    bench::GpuModelBenchOptions gpu{.engine = engine,
                                    .batch_sizes = options.batch_sizes,
                                    .num_adapters = options.num_adapters,
                                    .adapter_rank = options.adapter_rank,
                                    .progress = bars.progress(),
                                    .on_case = on_case};
    gpu.depth = one_depth(app, options, "on a GPU", gpu.depth);
    return bench::bench_model_on_gpu(gpu);
  }
  for (const char* flag : {"--batch-sizes", "--adapters", "--adapter-rank"})
    reject_flag(app, flag, "GPUs", engine.device);
  return bench::bench_model({.engine = engine,
                             .prompt_tokens = options.prompt_tokens,
                             .new_tokens = options.new_tokens,
                             .depths = options.depths,
                             .repetitions = options.repetitions,
                             .progress = bars.progress(),
                             .on_case = on_case});
}

// Benches every backend that supports the model, except those for verification. Returns one report, in which
// case names include the backend. Logs the reason why a backend is skipped.
bench::Report bench_all_backends(const CLI::App& app, const BenchOptions& options, const EngineConfig& engine,
                                 EngineBars& bars, const OnCase& on_case) {
  for (const char* flag : {"--prefill-attention-backend", "--decode-attention-backend"})
    require(!given(app, flag), flag, ": not with --attention-backend all, which times every backend");
  bench::Report all;
  for (const BackendEntry& entry : backend_table()) {
    if (entry.slow) continue;
    EngineConfig one = engine;
    one.backend_options.attention_backend = entry.name;
    // Appends the new cases to those of other backends.
    const auto after_others = [&](bench::Report report) {
      for (bench::CaseResult& result : report.cases)
        result.name = std::string(entry.name) + ": " + result.name;
      report.cases.insert(report.cases.begin(), all.cases.begin(), all.cases.end());
      report.kernels.insert(report.kernels.begin(), all.kernels.begin(), all.kernels.end());
      return report;
    };
    try {
      all = after_others(bench_model(app, options, one, bars,
                                     [&](const bench::Report& report) { on_case(after_others(report)); }));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      log_warning(entry.name, " is skipped: ", error.what());
    }
  }
  if (all.cases.empty())
    fail(ErrorCode::kUnsupported, "--attention-backend all: no backend supports this model on ",
         engine.device);
  return all;
}

int run_model(const CLI::App& app, const BenchOptions& options) {
  const EngineConfig engine = to_config(app, options.engine, options.model);
  BenchOutput output(options.json);
  const OnCase on_case = [&](const bench::Report& report) { output.show(report); };
  try {
    const bool all = engine.backend_options.attention_backend == "all";
    output.finish((all ? bench_all_backends : bench_model)(app, options, engine, output.bars(), on_case));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    // The engine's message names flags that bench does not have, since bench chooses those sizes itself.
    std::string what = error.what();
    what = what.substr(0, what.find("; lower --"));
    fail(ErrorCode::kOutOfMemory, what, "; fewer layers need less memory (--num-layers",
         options.model.shape.empty() ? ", with --load-format dummy)" : ") or a smaller --shape");
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Command& selected) {
  CLI::App* group = app.add_subcommand(
      "bench", "Measure attention, a model or serving, and compare with the machine's limits");
  group->require_subcommand(1);
  const auto select = [&selected](CLI::App* command, std::shared_ptr<BenchOptions> options, auto run) {
    set_group(*command, "Output");
    add_text(*command, "--json", options->json, "write results to this file");
    command->callback([=, &selected] {
      selected = [=] {
        check_writable("--json", options->json);
        return run(*command, *options);
      };
    });
  };

  auto attention = std::make_shared<BenchOptions>();
  CLI::App* command =
      group->add_subcommand("attention", "Attention on the CPU, with 1 thread and with all threads");
  set_group(*command, "Cases");
  add_text(*command, "--device", attention->engine.device,
           "auto or cpu; on a GPU cuda_attention_bench times attention (cmake -DATTEND_BENCHMARKS=ON)");
  add_threads(*command, attention->engine, "maximum number of CPU threads; default: one per core");
  add_text(*command, "--case", attention->filter, "only cases whose name contains this text");
  select(command, attention, run_attention);

  auto model = std::make_shared<BenchOptions>();
  command = group->add_subcommand(
      "model",
      "On a CPU: one request, with cases pp512 (a prompt of 512 tokens) and tg128 (128 generated "
      "tokens), named as in llama-bench; tokens/s is the mean, us the median step. "
      "On a GPU: decode steps of batches with 1k tokens of context, and a prompt of 8k tokens. "
      "With --attention-backend all: every backend that supports the model. "
      "With --speculative-algorithm: verification of drafts, the draft model, and whole rounds, compared "
      "with "
      "plain decode steps");
  // No size options, since the bench chooses sizes by case.
  add_choice_options(*command, model->engine, ModelArgument::kOptional);
  add_run_options(*command, model->engine);
  add_draft_model_options(*command, model->engine);
  add_number(
      *command, "--speculative-accept-length", model->accept_length,
      "mean number of tokens per verification, whatever is drafted: models with random weights accept no "
      "drafts; default: drafts are verified",
      Range<double>{.lowest = 1.0, .highest = 64.0});
  add_model_choice(*command, model->model);
  set_group(*command, "Cases");
  add_numbers(*command, "--prompt-tokens,--n-prompt,-p", model->prompt_tokens,
              "0 to the model's maximum length", "CPUs: prompt lengths to time, such as 512,2048; 0: none");
  add_numbers(*command, "--new-tokens,--n-gen,-n", model->new_tokens, "0 to the model's maximum length",
              "CPUs: numbers of tokens to generate, such as 32,128; 0: none");
  add_numbers(*command, "--depth,--n-depth,-d", model->depths, "0 to the model's maximum length",
              "context length before the timed tokens; CPUs: such as 0,4096,16384; GPUs: one "
              "number, without it 1000; with drafts one number, without it 128");
  add_number(*command, "--repetitions,-r", model->repetitions,
             "CPUs, and with drafts: number of repetitions of each case",
             Range<int>{.lowest = 1, .highest = 1000});
  add_numbers(*command, "--batch-sizes", model->batch_sizes, "1 to the model's maximum length",
              "GPUs, and with drafts: batch sizes of the timed decode steps");
  add_number(*command, "--adapters", model->num_adapters,
             "GPUs: also times steps whose requests have this number of LoRA adapters in turn",
             Range<int>{.lowest = 0, .highest = 1000});
  add_number(*command, "--adapter-rank", model->adapter_rank, "GPUs: rank of these adapters",
             Range<int>{.lowest = 1, .highest = 256});
  set_usual_flags(*command, {"--model-path", "--shape", "--prompt-tokens", "--new-tokens", "--batch-sizes",
                             "--device", "--threads"});
  select(command, model, run_model);

  add_bench_serving(*group, selected);
}

}  // namespace attend::cli
