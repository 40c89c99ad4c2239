// Command attend bench serving: runs an engine on a trace of requests.

#include <memory>
#include <utility>

#include "attend/base/error.h"
#include "attend/bench/serving/serving_bench.h"
#include "attend/cli/commands/commands.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/bench_options.h"
#include "attend/cli/options/flags.h"
#include "attend/cli/progress_bar.h"

namespace attend::cli {
namespace {

struct ServingFlags {
  EngineOptions engine;
  ModelChoice model;
  bool offline = false;
  bench::TraceOptions trace;
  double request_rate = 0.0;  // used if given; otherwise all requests arrive at the start
  std::string input_len = "512", output_len = "128";
  std::string trace_file;
  int max_concurrency = 0;
  std::string json, profile;
};

void check_trace_flags(const CLI::App& app, const ServingFlags& flags) {
  require(!given(app, "--burstiness") || given(app, "--request-rate"), "--burstiness: needs --request-rate");
  if (flags.trace_file.empty()) return;
  for (const char* flag :
       {"--num-prompts", "--input-len", "--shared-prefixes", "--shared-prefix-len", "--num-turns"})
    require(!given(app, flag), flag, ": not with --trace, whose file contains it");
}

int run_serving(const CLI::App& app, const ServingFlags& flags) {
  check_trace_flags(app, flags);
  bench::ServingOptions options{.engine = to_config(app, flags.engine, flags.model),
                                .trace = flags.trace,
                                .trace_file = flags.trace_file,
                                .max_concurrency = flags.max_concurrency,
                                .profile = flags.profile};
  options.trace.input = bench::LengthDistribution::parse("--input-len", flags.input_len);
  options.trace.output = bench::LengthDistribution::parse("--output-len", flags.output_len);
  options.trace.seed = flags.engine.random_seed;
  if (given(app, "--request-rate")) options.trace.request_rate = flags.request_rate;
  EngineBars bars;
  options.progress = bars.progress();
  options.served = [&](int num_done, int num_requests) { bars.show_requests(num_done, num_requests); };
  const bench::ServingResult result = bench::bench_serving(options);
  bars.clear();
  print(result);
  if (!flags.json.empty()) write_json(result, flags.json);
  return 0;
}

}  // namespace

void add_bench_serving(CLI::App& group, Command& selected) {
  auto flags = std::make_shared<ServingFlags>();
  CLI::App* command = group.add_subcommand(
      "serving", "Run an engine in this process on a trace of requests: latencies, throughput, pool usage");
  constexpr Range<int> kPositive{.lowest = 1, .highest = 1 << 24};
  constexpr Range<double> kRate{.lowest = 1e-6, .highest = 1e9};
  add_choice_options(*command, flags->engine, ModelArgument::kOptional);
  add_size_options(*command, flags->engine);
  add_run_options(*command, flags->engine);
  add_model_choice(*command, flags->model);
  set_group(*command, "Trace");
  add_number(*command, "--random-seed", flags->engine.random_seed, "seed of the trace; default: 0");
  add_number(*command, "--num-prompts", flags->trace.num_conversations, "number of requests or conversations",
             kPositive);
  add_number(*command, "--request-rate", flags->request_rate,
             "requests per second, as a Poisson process; default: all arrive at the start", kRate);
  add_number(*command, "--burstiness", flags->trace.burstiness,
             "shape of the gamma distribution of the intervals; below 1: bursts", kRate);
  add_text(
      *command, "--input-len", flags->input_len,
      "prompt length in tokens: 512, 100:1024 (uniform), or lognormal:512:0.8:4096 (median, sigma, maximum)");
  add_text(*command, "--output-len", flags->output_len, "output length in tokens, in the same formats");
  add_number(*command, "--shared-prefixes", flags->trace.num_shared_prefixes, "number of shared prefixes",
             kPositive);
  add_number(*command, "--shared-prefix-len", flags->trace.shared_prefix_tokens,
             "length of a shared prefix in tokens", kPositive);
  add_number(*command, "--num-turns", flags->trace.num_turns,
             "requests per conversation; each contains the previous turns", kPositive);
  add_text(*command, "--trace", flags->trace_file,
           "file with JSON lines: \"prompt\" or \"input_ids\", optionally \"output_len\" and \"arrival\" "
           "(seconds), "
           "or \"turns\" with these");
  add_number(*command, "--max-concurrency", flags->max_concurrency,
             "maximum number of unfinished requests; further requests are sent later", kPositive);
  set_group(*command, "Output");
  add_text(*command, "--json", flags->json, "write results and samples to this file");
  add_text(*command, "--profile", flags->profile,
           "write a trace of each step's time to this file, for chrome://tracing and Perfetto");
  command->add_flag("--offline", flags->offline,
                    "the engine always runs in this process, without a server: no effect");
  set_usual_flags(*command, {"--model-path", "--shape", "--num-prompts", "--request-rate", "--input-len",
                             "--output-len", "--json", "--device"});
  command->callback([command, flags, &selected] {
    selected = [command, flags] {
      check_writable("--json", flags->json);
      check_writable("--profile", flags->profile);
      return run_serving(*command, *flags);
    };
  });
}

}  // namespace attend::cli
