// Command attend generate: completes prompts in batches.

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/model_folder.h"
#include "attend/cli/commands/commands.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/engine_options.h"
#include "attend/cli/options/flags.h"
#include "attend/cli/options/grammar_flags.h"
#include "attend/cli/options/sampling_options.h"
#include "attend/cli/progress_bar.h"
#include "attend/cli/prompts.h"
#include "attend/cli/report.h"
#include "attend/cli/standard_streams.h"
#include "attend/engine/engine.h"
#include "attend/exec/step_trace.h"
#include "attend/model/config/model_spec.h"
#include "attend/text/chat_template/chat_template.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::cli {
namespace {

struct GenerateOptions {
  EngineOptions engine;
  std::vector<std::string> prompts, images;
  std::string prompts_file, prompt_file, lora_name;
  SamplingOptions sampling;
  GrammarFlags grammar;
  bool json = false;
  bool show_prompts = false;
  bool chat = false;
  std::string chat_template;
  std::string profile;
};

// Same value as the engine will use.
int resolve_context_length(const EngineOptions& options) {
  return options.context_length > 0 ? options.context_length
                                    : read_config(options.model_path).max_context_len();
}

std::vector<Prompt> gather_prompts(const GenerateOptions& options, const SamplingChoice& sampling) {
  const int num_sources = (options.prompts.empty() ? 0 : 1) + (options.prompts_file.empty() ? 0 : 1) +
                          (options.prompt_file.empty() ? 0 : 1);
  require(num_sources > 0, "no prompt: expected --prompt, --prompts-file or --file");
  require(num_sources == 1, "--prompt, --prompts-file and --file: expected one of them");
  if (!options.prompts_file.empty()) return read_prompts_file(options.prompts_file, sampling);
  if (!options.prompt_file.empty())
    return {read_prompt_file(options.prompt_file, sampling, resolve_context_length(options.engine))};
  std::vector<Prompt> prompts;
  for (const std::string& text : options.prompts) {
    require(tokenizer::is_valid_utf8(text), "prompt ", prompts.size() + 1, ": expected UTF-8 text");
    prompts.push_back({text, {}, std::nullopt, sampling.params});
  }
  return prompts;
}

// Returns the prompt for the engine: ids, text, or the text after the chat template, with images before it.
std::variant<std::string, std::vector<int32_t>> encode_prompt(const Engine& engine, const Prompt& prompt,
                                                              const std::optional<ChatTemplate>& chat,
                                                              size_t num_images) {
  if (!chat) {
    if (prompt.input_ids.empty()) return prompt.text;
    return prompt.input_ids;
  }
  require(prompt.input_ids.empty(), "--chat: expected text, not input_ids");
  nlohmann::json content = prompt.text;
  if (num_images > 0) {
    content = nlohmann::json(num_images, {{"type", "image"}});
    content.push_back({{"type", "text"}, {"text", prompt.text}});
  }
  const nlohmann::json variables = {{"messages", {{{"role", "user"}, {"content", std::move(content)}}}}};
  std::vector<ChatTemplate::Part> parts = chat->render(variables.dump());
  if (num_images > 0) write_placeholders(engine.model_spec(), parts);
  return encode_parts(*engine.tokenizer(), parts);
}

// Returns the template selected by --chat or --chat-template.
std::optional<ChatTemplate> find_chat_template(const GenerateOptions& options) {
  if (!options.chat && options.chat_template.empty() && options.images.empty()) return std::nullopt;
  return require_chat_template(options.engine.model_path, options.chat_template);
}

std::vector<std::string> read_images(const std::vector<std::string>& paths) {
  constexpr size_t kMaxImageBytes = size_t{256} << 20;
  std::vector<std::string> images;
  for (const std::string& path : paths) images.push_back(read_file(path, kMaxImageBytes));
  return images;
}

// Creates a request per prompt and validates it. An error names the prompt.
std::vector<std::unique_ptr<Request>> prepare_all(const Engine& engine, const std::vector<Prompt>& prompts,
                                                  const std::vector<std::string>& images,
                                                  const std::optional<ChatTemplate>& chat,
                                                  std::optional<ChosenGrammar>& grammar,
                                                  const std::string& adapter) {
  const std::shared_ptr<const TokenMask> mask = grammar ? grammar->compile(engine) : nullptr;
  std::vector<std::unique_ptr<Request>> requests;
  for (const Prompt& prompt : prompts) {
    try {
      requests.push_back(engine.prepare({.prompt = encode_prompt(engine, prompt, chat, images.size()),
                                         .images = images,
                                         .params = prompt.params,
                                         .adapter = prompt.adapter.value_or(adapter),
                                         .mask = mask ? mask->fork() : nullptr,
                                         .priority = prompt.priority}));
    } catch (const Error& error) {
      fail(error.code(), "prompt ", requests.size() + 1, ": ", error.what());
    }
  }
  return requests;
}

Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Scripts need the completions only, and users see which prompt a completion belongs to.
OutputFormat choose_format(const CLI::App& app, const GenerateOptions& options,
                           const std::vector<Prompt>& prompts) {
  require(!options.json || !given(app, "--show-prompts"), "--show-prompts: not with --json");
  if (options.json) return OutputFormat::kJson;
  const bool has_several = prompts.size() > 1 || prompts.front().params.n > 1;
  const bool shows =
      given(app, "--show-prompts") ? options.show_prompts : isatty(STDOUT_FILENO) && has_several;
  return shows ? OutputFormat::kPrompts : OutputFormat::kText;
}

int run(const CLI::App& app, const GenerateOptions& options) {
  for (const char* flag : {"--logprobs", "--prompt-logprobs"})
    require(options.json || !given(app, flag), flag, ": only with --json");
  const SamplingChoice sampling =
      choose_sampling(app, options.sampling, read_generation_config(options.engine.model_path));
  check_writable("--profile", options.profile);
  const std::vector<Prompt> prompts = gather_prompts(options, sampling);
  const std::vector<std::string> images = read_images(options.images);
  const std::optional<ChatTemplate> chat = find_chat_template(options);
  std::optional<ChosenGrammar> grammar = ChosenGrammar::make(options.grammar);
  const EngineConfig config = to_config(app, options.engine);
  const std::string adapter = choose_adapter(options.lora_name, config.lora_paths);
  EngineBars bars;
  EngineProgress progress = bars.progress();
  std::vector<std::unique_ptr<Request>> requests;
  progress.resolved = [&](const Engine& engine) {
    if (chat && engine.tokenizer() == nullptr)
      fail(ErrorCode::kUnsupported, "--chat: ", options.engine.model_path, " has no tokenizer.json",
           note_on_missing(MissingFile::kTokenizer, options.engine.model_path));
    if (!images.empty() && !engine.info().no_images.empty())
      fail(ErrorCode::kUnsupported, "--image: ", engine.info().no_images);
    requests = prepare_all(engine, prompts, images, chat, grammar, adapter);
  };
  const auto engine = std::make_unique<Engine>(config, progress);
  bars.clear();
  int64_t num_prompt_tokens = 0;
  RequestId next_id = 1;  // each completion has its own id
  for (size_t i = 0; i < requests.size(); ++i) {
    std::unique_ptr<Request>& request = requests[i];
    const int num_completions = request->params.n;
    num_prompt_tokens += int64_t{request->num_prompt} * num_completions;
    request->times.submitted = Clock::now();
    if (prompts[i].timeout) request->deadline = request->times.submitted + to_duration(*prompts[i].timeout);
    engine->enqueue(std::move(request), std::exchange(next_id, next_id + num_completions));
  }
  print_start(engine->info());
  log_info(sampling.description);
  Report report(prompts, choose_format(app, options, prompts), engine->tokenizer() != nullptr);
  const auto sink = [&](const RequestOutput& output) {
    bars.clear();
    // Checks before an answer is complete, since writing to the files changes the mapped weights.
    if (output.finish_reason != FinishReason::kNone) engine->check_weights();
    report.add(static_cast<size_t>(output.id - 1 + output.index), output);
  };
  if (!options.profile.empty()) engine->trace().start(0);
  const EngineStats& stats = engine->stats();
  for (int64_t shown = -1; engine->step(sink);) {
    const int64_t num_read = stats.num_prefill_tokens + stats.num_cached_tokens;
    if (stats.num_generated_tokens == 0 && std::exchange(shown, num_read) != shown)
      bars.show_prompts(num_read, num_prompt_tokens);
  }
  if (!options.profile.empty()) engine->trace().stop_to_file(options.profile);
  print_end(*engine);
  if (report.num_answers() > 0 && !options.json) {
    const std::string answers =
        fmt::format("answers: {} of {} right", report.num_right(), report.num_answers());
    if (report.format() == OutputFormat::kPrompts)
      write_out(answers + "\n");
    else
      log_info(answers);
  }
  if (!report.failed().empty())
    fail(ErrorCode::kUnsupported, "prompt ", fmt::format("{}", fmt::join(report.failed(), ", ")), ": ",
         report.failure());
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Command& selected) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Complete prompts");
  add_choice_options(*command, options->engine, ModelArgument::kRequired);
  add_size_options(*command, options->engine);
  add_run_options(*command, options->engine);
  add_adapter_options(*command, options->engine);
  add_adapter_name(*command, options->lora_name);
  set_group(*command, "Prompts");
  add_repeated(*command, "--prompt,-p", options->prompts, "prompt to complete; may be given several times");
  add_text(
      *command, "--prompts-file", options->prompts_file,
      "file with one prompt per line (- for standard input): plain text, or JSON objects with \"prompt\" or "
      "\"input_ids\" and optionally \"answer\", \"priority\", \"timeout\" (seconds), \"lora_path\" (name of "
      "an "
      "adapter), \"temperature\" and "
      "other "
      "sampling parameters");
  add_text(*command, "--file,-f", options->prompt_file,
           "file (- for standard input) that contains a single prompt");
  command->add_flag("--chat", options->chat,
                    "treat each prompt as a user message: apply the model's chat template");
  add_repeated(*command, "--image", options->images,
               "JPEG, PNG or WebP file, for models that read images; implies --chat: each prompt is a user "
               "message with the image before its text; may be given several times");
  add_text(*command, "--chat-template", options->chat_template,
           "implies --chat; file with a chat template, or name of one of the model's templates");
  add_sampling_options(*command, options->sampling);
  set_group(*command, "Sampling");
  add_number(*command, "--random-seed", options->engine.random_seed,
             "seed of requests without a seed; default: 0");
  add_grammar_options(*command, options->grammar);
  set_group(*command, "Output");
  command->add_flag("--json", options->json,
                    "print one JSON object per prompt when it is complete, in the order of the prompts");
  add_text(*command, "--profile", options->profile,
           "write a trace of each step's time to this file, for chrome://tracing and Perfetto");
  command->add_flag(
      "--show-prompts,!--no-show-prompts", options->show_prompts,
      "print the number and the start of each prompt before its completion; default: on a terminal, if there "
      "are several completions");
  set_usual_flags(*command, {"--model-path", "--prompt", "--prompts-file", "--chat", "--max-new-tokens",
                             "--temperature", "--json", "--device", "--threads"});
  command->callback(
      [command, options, &selected] { selected = [command, options] { return run(*command, *options); }; });
}

}  // namespace attend::cli
