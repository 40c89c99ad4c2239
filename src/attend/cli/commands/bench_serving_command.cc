// attend bench serving: an engine under a trace of requests.

#include <memory>
#include <utility>

#include "attend/base/error.h"
#include "attend/bench/serving/serving_bench.h"
#include "attend/cli/commands/commands.h"
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
  double request_rate = 0.0;  // unless it is given: all at once
  std::string input_len = "512", output_len = "128";
  std::string trace_file;
  int max_concurrency = 0;
  std::string json;
};

void check_trace_flags(const CLI::App& app, const ServingFlags& flags) {
  require(flags.offline,
          "give --offline: the engine is timed in this process; of a server over HTTP a client says how fast "
          "it is");
  require(!given(app, "--burstiness") || given(app, "--request-rate"), "--burstiness: needs --request-rate");
  if (flags.trace_file.empty()) return;
  for (const char* flag :
       {"--num-prompts", "--input-len", "--shared-prefixes", "--shared-prefix-len", "--num-turns"})
    require(!given(app, flag), flag, ": with --trace the file says it");
}

int run_serving(const CLI::App& app, const ServingFlags& flags) {
  check_trace_flags(app, flags);
  bench::ServingOptions options{.engine = to_config(app, flags.engine, flags.model),
                                .trace = flags.trace,
                                .trace_file = flags.trace_file,
                                .max_concurrency = flags.max_concurrency};
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
      "serving", "An engine under a trace of requests: latencies, tokens a second, pool");
  constexpr Range<int> kPositive{.lowest = 1, .highest = 1 << 24};
  constexpr Range<double> kRate{.lowest = 1e-6, .highest = 1e9};
  command->add_flag("--offline", flags->offline, "without a server, in this process: must be given");
  add_choice_options(*command, flags->engine, /*model_required=*/false);
  add_size_options(*command, flags->engine);
  add_run_options(*command, flags->engine);
  add_model_choice(*command, flags->model);
  add_number(*command, "--random-seed", flags->engine.random_seed, "another one, another trace");
  add_number(*command, "--num-prompts", flags->trace.num_conversations, "requests, or conversations of them",
             kPositive);
  add_number(*command, "--request-rate", flags->request_rate,
             "that come in a second, as a Poisson process; default: all come at once", kRate);
  add_number(*command, "--burstiness", flags->trace.burstiness,
             "shape of the gamma distribution of the times between two: below 1 they come in bursts", kRate);
  add_text(*command, "--input-len", flags->input_len,
           "tokens of a prompt: 512, 100:1024 (even), or lognormal:512:0.8:4096 (median, sigma, the most); "
           "default 512");
  add_text(*command, "--output-len", flags->output_len, "tokens of an answer, in the same ways; default 128");
  add_number(*command, "--shared-prefixes", flags->trace.num_shared_prefixes, "number of shared prefixes",
             kPositive);
  add_number(*command, "--shared-prefix-len", flags->trace.shared_prefix_tokens, "their tokens", kPositive);
  add_number(*command, "--num-turns", flags->trace.num_turns,
             "requests of a conversation; each contains the previous turns", kPositive);
  add_text(
      *command, "--trace", flags->trace_file,
      "JSON lines instead: \"prompt\" or \"input_ids\", perhaps \"output_len\" and \"arrival\" (seconds), "
      "or \"turns\" of these");
  add_number(*command, "--max-concurrency", flags->max_concurrency,
             "requests that are not answered yet at most; others are sent later", kPositive);
  add_text(*command, "--json", flags->json, "write figures and samples to this file");
  command->callback([command, flags, &selected] {
    selected = [command, flags] {
      check_writable("--json", flags->json);
      return run_serving(*command, *flags);
    };
  });
}

}  // namespace attend::cli
