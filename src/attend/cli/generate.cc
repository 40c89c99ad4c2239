// attend generate: completions of prompts, many at once.

#include <fmt/format.h>

#include <memory>
#include <unordered_map>

#include "attend/base/error.h"
#include "attend/cli/commands.h"
#include "attend/cli/engine_options.h"
#include "attend/cli/flags.h"
#include "attend/cli/progress_bar.h"
#include "attend/cli/prompts.h"
#include "attend/cli/report.h"
#include "attend/engine/engine.h"
#include "attend/model/tokenizer/utf8.h"

namespace attend::cli {
namespace {

struct GenerateOptions {
  EngineOptions engine;
  std::vector<std::string> prompts;
  std::string prompts_file;
  SamplingParams sampling;
  uint64_t seed = 0;
  bool json = false;
};

std::vector<Prompt> gather_prompts(const GenerateOptions& options) {
  require(options.prompts.empty() || options.prompts_file.empty(),
          "--prompt and --prompts-file: give one of them");
  require(!options.prompts.empty() || !options.prompts_file.empty(),
          "no prompt: give --prompt or --prompts-file");
  if (!options.prompts_file.empty()) return read_prompts_file(options.prompts_file);
  std::vector<Prompt> prompts;
  for (const std::string& text : options.prompts) {
    require(tokenizer::is_valid_utf8(text), "prompt ", prompts.size() + 1, ": expected UTF-8 text");
    prompts.push_back({text, {}, std::nullopt});
  }
  return prompts;
}

// Queues every prompt; an error names which one.
std::unordered_map<RequestId, size_t> submit_all(Engine& engine, const std::vector<Prompt>& prompts,
                                                 const SamplingParams& sampling) {
  std::unordered_map<RequestId, size_t> indices;
  for (size_t i = 0; i < prompts.size(); ++i) {
    try {
      const RequestId id = prompts[i].input_ids.empty() ? engine.submit(prompts[i].text, sampling)
                                                        : engine.submit(prompts[i].input_ids, sampling);
      indices.emplace(id, i);
    } catch (const Error& error) {
      fail(error.code(), "prompt ", i + 1, ": ", error.what());
    }
  }
  return indices;
}

int run(const CLI::App& app, const GenerateOptions& options) {
  SamplingParams sampling = options.sampling;
  if (app.count("--seed") > 0) sampling.seed = options.seed;
  check(sampling);
  const std::vector<Prompt> prompts = gather_prompts(options);
  std::unique_ptr<Engine> engine;
  {
    EngineBars bars;
    engine = std::make_unique<Engine>(to_config(app, options.engine), bars.progress());
  }
  const auto indices = submit_all(*engine, prompts, sampling);
  print_start(engine->info());
  Report report(prompts, options.json ? OutputFormat::kJson : OutputFormat::kText);
  while (engine->step([&](const StepOutput& output) { report.add(indices.at(output.id), output); })) {
  }
  print_end(*engine);
  engine->check_weights();
  if (report.num_answers() > 0 && !options.json)
    fmt::print("answers: {} of {} right\n", report.num_right(), report.num_answers());
  if (!report.failed().empty())
    fail(ErrorCode::kUnsupported, "prompt ", fmt::format("{}", fmt::join(report.failed(), ", ")),
         ": the model's logits are NaN: expected weights and a --kv-cache-dtype whose range holds its "
         "activations");
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Command& selected) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Complete prompts");
  add_engine_options(*command, options->engine, /*model_required=*/true);
  add_repeated(*command, "--prompt,-p", options->prompts, "a prompt; may be given several times");
  add_text(*command, "--prompts-file", options->prompts_file,
           "one prompt per line (- for standard input): all text, or all JSON objects with \"prompt\" or "
           "\"input_ids\" and perhaps \"answer\"");
  SamplingParams& sampling = options->sampling;
  add_number(*command, "--max-new-tokens,--max-tokens,-n", sampling.max_new_tokens,
             "tokens of a completion at most");
  add_number(*command, "--temperature", sampling.temperature, "0, the default: the likeliest token");
  add_number(*command, "--top-k", sampling.top_k, "sample from the k likeliest; 0, the default: all");
  add_number(*command, "--top-p", sampling.top_p,
             "sample from the likeliest that reach this probability together");
  add_number(*command, "--min-p", sampling.min_p,
             "drop tokens below this share of the likeliest's probability; default 0");
  add_number(*command, "--seed", options->seed,
             "seed of every prompt's sampling; default: one for each prompt, of --random-seed");
  add_repeated(*command, "--stop", sampling.stop, "stop before this text; may be given several times");
  add_numbers(*command, "--stop-token-ids", sampling.stop_token_ids, "stop after one of these token ids");
  command->add_flag("--ignore-eos", sampling.ignore_eos, "go on after the end-of-sequence token");
  command->add_flag("--json", options->json,
                    "print one JSON object per prompt when it is done, in the order of the prompts");
  command->callback(
      [command, options, &selected] { selected = [command, options] { return run(*command, *options); }; });
}

}  // namespace attend::cli
