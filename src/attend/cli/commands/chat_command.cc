// Command attend chat: a conversation in the terminal, or one turn per line of a pipe.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/printable.h"
#include "attend/checkpoint/model_folder.h"
#include "attend/cli/commands/commands.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/line_editor.h"
#include "attend/cli/options/engine_options.h"
#include "attend/cli/options/flags.h"
#include "attend/cli/options/sampling_options.h"
#include "attend/cli/progress_bar.h"
#include "attend/cli/report.h"
#include "attend/cli/standard_streams.h"
#include "attend/engine/engine.h"
#include "attend/text/chat_template/chat_template.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::cli {
namespace {

struct ChatOptions {
  EngineOptions engine;
  SamplingOptions sampling;
  std::string system, chat_template, lora_name;
};

// Set by Ctrl-C: stops the current answer.
volatile std::sig_atomic_t interrupted = 0;

constexpr const char* kHelp =
    "/clear          start a new conversation\n"
    "/retry          answer the last question again\n"
    "/undo           remove the last question and its answer\n"
    "/system TEXT    set the system prompt and start a new conversation\n"
    "/temperature T  set the temperature; 0: greedy\n"
    "/history        show the conversation\n"
    "/help, /exit    show this help; leave\n"
    "A line that ends with \\ continues on the next line; \"\"\" starts and ends a text of several lines.\n"
    "Ctrl-C stops an answer, or clears the line; on an empty line it leaves, as Ctrl-D does.\n";

// Writes text of the model or the user. Removes control characters if stdout is a terminal.
void write_text(std::string_view text) {
  if (isatty(STDOUT_FILENO))
    write_out(printable(text));
  else
    write_out(text);
}

class Conversation {
 public:
  Conversation(Engine& engine, ChatTemplate chat, SamplingParams sampling, std::string system,
               std::string adapter)
      : engine_(engine),
        chat_(std::move(chat)),
        sampling_(std::move(sampling)),
        system_(std::move(system)),
        adapter_(std::move(adapter)) {
    clear();
  }

  void clear() {
    messages_ = nlohmann::ordered_json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }
  void set_system(std::string text) {
    system_ = std::move(text);
    clear();
  }
  void set_temperature(float temperature) {
    SamplingParams changed = sampling_;
    changed.temperature = temperature;
    check(changed);
    sampling_ = changed;
  }

  // Removes the last question and the messages after it. Returns the question.
  std::string undo() {
    while (!messages_.empty() && messages_.back()["role"] != "system") {
      const nlohmann::ordered_json last = messages_.back();
      messages_.erase(messages_.size() - 1);
      if (last["role"] == "user") return last["content"].get<std::string>();
    }
    fail(ErrorCode::kInvalidArgument, "there is no previous question");
  }

  void show_history() const {
    for (const auto& message : messages_)
      write_text(
          fmt::format("{}: {}\n", message["role"].get<std::string>(), message["content"].get<std::string>()));
  }

  // Streams the answer to stdout. An error leaves the conversation unchanged.
  void stream_answer(const std::string& question) {
    messages_.push_back({{"role", "user"}, {"content", question}});
    try {
      answer();
    } catch (...) {
      messages_.erase(messages_.size() - 1);
      throw;
    }
  }

 private:
  void answer() {
    const nlohmann::ordered_json variables = {{"messages", messages_}};
    std::vector<int32_t> prompt = chat_.encode(*engine_.tokenizer(), variables.dump());
    const auto num_prompt = prompt.size();
    interrupted = 0;
    const auto start = Clock::now();
    Clock::time_point first = start, last = start;
    int num_tokens = 0;
    std::string text;
    FinishReason reason = FinishReason::kNone;
    const RequestId id =
        engine_.submit({.prompt = std::move(prompt), .params = sampling_, .adapter = adapter_});
    const auto sink = [&](const RequestOutput& output) {
      last = Clock::now();
      if (num_tokens == 0) first = last;
      num_tokens += static_cast<int>(output.token_ids.size());
      text += output.text;
      write_text(output.text);
      reason = output.finish_reason;
    };
    while (engine_.step(sink))
      if (interrupted) engine_.abort(id, sink);
    write_out("\n");
    if (reason == FinishReason::kError) fail(ErrorCode::kUnsupported, "the model's logits are NaN");
    messages_.push_back({{"role", "assistant"}, {"content", text}});
    const auto seconds = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };
    std::string note = fmt::format("{} prompt tokens, first token after {:.0f} ms, {} tokens", num_prompt,
                                   seconds(start, first) * 1e3, num_tokens);
    if (num_tokens > 1 && last > first)
      note += fmt::format(", {:.1f} tokens/s", (num_tokens - 1) / seconds(first, last));
    if (reason != FinishReason::kStop) note += fmt::format(" ({})", to_string(reason));
    if (isatty(STDERR_FILENO)) fmt::print(stderr, "\033[2m{}\033[0m\n", note);
  }

  Engine& engine_;
  ChatTemplate chat_;
  SamplingParams sampling_;
  std::string system_, adapter_;
  nlohmann::ordered_json messages_;
};

// Lines of the user: typed on a terminal, or of a pipe.
class Input {
 public:
  Input() {
    if (isatty(STDIN_FILENO)) editor_ = std::make_unique<LineEditor>();
  }

  bool on_terminal() const { return editor_ != nullptr; }

  // Reads one turn of the user, a line or several. Returns false at the end of the input. Ctrl-C within a
  // turn of several lines clears the turn.
  bool read_turn(std::string& turn) {
    if (read_line("> ", turn) != Result::kLine) return false;
    const bool complete = turn.starts_with(kFence) ? read_fenced(turn) : read_continued(turn);
    if (!complete) turn.clear();
    return true;
  }

 private:
  using Result = LineEditor::Result;
  static constexpr std::string_view kFence = "\"\"\"";

  Result read_line(const char* prompt, std::string& line) {
    if (editor_) return editor_->read(prompt, line);
    if (!std::getline(std::cin, line)) return Result::kEnd;
    if (line.ends_with('\r')) line.pop_back();
    return Result::kLine;
  }

  // Both return false if the turn was interrupted.
  bool read_fenced(std::string& turn) {
    turn.erase(0, kFence.size());
    std::string line;
    while (!turn.ends_with(kFence)) {
      const Result result = read_line(". ", line);
      if (result == Result::kInterrupt) return false;
      if (result == Result::kEnd) return true;
      turn += "\n" + line;
    }
    turn.resize(turn.size() - kFence.size());
    return true;
  }
  bool read_continued(std::string& turn) {
    std::string line;
    while (turn.ends_with('\\')) {
      turn.back() = '\n';
      const Result result = read_line(". ", line);
      if (result == Result::kInterrupt) return false;
      if (result == Result::kEnd) return true;
      turn += line;
    }
    return true;
  }

  std::unique_ptr<LineEditor> editor_;
};

enum class Next { kContinue, kExit };

Next do_command(Conversation& conversation, const std::string& line) {
  const size_t space = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, space);
  const std::string rest = space < line.size() ? line.substr(space + 1) : "";
  if (name == "/exit" || name == "/quit" || name == "/bye") return Next::kExit;
  if (name == "/help" || name == "/?") {
    write_out(kHelp);
  } else if (name == "/clear") {
    conversation.clear();
  } else if (name == "/system") {
    conversation.set_system(rest);
  } else if (name == "/temperature") {
    conversation.set_temperature(parse_number<float>("/temperature", rest));
  } else if (name == "/undo") {
    conversation.undo();
  } else if (name == "/retry") {
    conversation.stream_answer(conversation.undo());
  } else if (name == "/history") {
    conversation.show_history();
  } else {
    fail(ErrorCode::kInvalidArgument, name, ": unknown command; /help lists the commands");
  }
  return Next::kContinue;
}

// On a terminal, an error is printed and the conversation continues; a pipe ends at the first error.
int run_conversation(Conversation& conversation) {
  Input input;
  const bool on_terminal = input.on_terminal();
  if (on_terminal) {
    std::signal(SIGINT, [](int) { interrupted = 1; });
    fmt::print(stderr, "/help lists the commands\n");
  }
  for (std::string turn; input.read_turn(turn);) {
    try {
      require(tokenizer::is_valid_utf8(turn), "expected UTF-8 text");
      if (turn.find_first_not_of(" \t\n") == turn.npos) continue;
      if (!turn.starts_with('/'))
        conversation.stream_answer(turn);
      else if (do_command(conversation, turn) == Next::kExit)
        break;
    } catch (const Error& error) {
      if (!on_terminal) throw;
      fmt::print(stderr, "{}\n", printable(error.what()));
    }
  }
  if (on_terminal) std::signal(SIGINT, SIG_DFL);
  return 0;
}

int run_chat(const CLI::App& app, const ChatOptions& options) {
  SamplingParams sampling =
      choose_sampling(app, options.sampling, read_generation_config(options.engine.model_path)).params;
  ChatTemplate chat = require_chat_template(options.engine.model_path, options.chat_template);
  EngineBars bars;
  EngineProgress progress = bars.progress();
  progress.resolved = [&](const Engine& engine) {
    if (!engine.tokenizer())
      fail(ErrorCode::kUnsupported, options.engine.model_path, ": has no tokenizer.json",
           note_on_missing(MissingFile::kTokenizer, options.engine.model_path));
  };
  const EngineConfig config = to_config(app, options.engine);
  std::string adapter = choose_adapter(options.lora_name, config.lora_paths);
  Engine engine(config, progress);
  bars.clear();
  print_start(engine.info());
  if (!given(app, "--max-new-tokens")) sampling.max_new_tokens = engine.info().context_length;
  Conversation conversation(engine, std::move(chat), std::move(sampling), options.system, std::move(adapter));
  return run_conversation(conversation);
}

}  // namespace

void add_chat(CLI::App& app, Command& selected) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command =
      app.add_subcommand("chat", "Chat with a model: in the terminal, or one turn per line of a pipe");
  add_choice_options(*command, options->engine, ModelArgument::kPositional);
  add_size_options(*command, options->engine);
  add_run_options(*command, options->engine);
  add_adapter_options(*command, options->engine);
  add_adapter_name(*command, options->lora_name);
  set_group(*command, "Conversation");
  add_text(*command, "--system", options->system, "system prompt");
  add_text(*command, "--chat-template", options->chat_template,
           "file with a chat template, or name of one of the model's templates");
  add_sampling_options(*command, options->sampling);
  // The output is the answer's text, once.
  for (const char* flag : {"--num-completions", "--echo", "--logprobs", "--prompt-logprobs"})
    command->remove_option(command->get_option(flag));
  command->get_option("--seed")->description(
      "sampling seed of all answers; -1: random; default: one per answer");
  command->get_option("--max-new-tokens")
      ->default_str("")
      ->description("maximum tokens per answer; -1: up to the context length, the default");
  set_usual_flags(*command, {"--model-path", "--system", "--max-new-tokens", "--temperature",
                             "--context-length", "--device", "--threads"});
  command->callback([command, options, &selected] {
    selected = [command, options] { return run_chat(*command, *options); };
  });
}

}  // namespace attend::cli
