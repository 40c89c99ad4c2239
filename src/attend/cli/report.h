// Output of `attend generate`: completions in the order of the prompts, printed while they are generated.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "attend/cli/prompts.h"
#include "attend/engine/embedder.h"
#include "attend/engine/engine.h"

namespace attend::cli {

enum class OutputFormat {
  kText,     // completions, each with a line end
  kPrompts,  // before each completion its prompt, after it whether it is the expected answer
  kJson,     // one object per line
};

// Each completion of a prompt is an entry; entries finish in any order. The first unfinished entry is
// streamed; later ones are stored until they are first.
class Report {
 public:
  // `has_text`: outputs contain text. Without a tokenizer, the completion is a list of ids.
  Report(const std::vector<Prompt>& prompts, OutputFormat format, bool has_text);

  // Adds output of entry `i`. If this entry is the one streamed, its text is printed immediately.
  void add(size_t i, const RequestOutput& output);
  bool done() const { return turn_ == entries_.size(); }
  OutputFormat format() const { return format_; }

  // Number of prompts with a known answer, and of those that were completed correctly.
  int num_answers() const { return num_answers_; }
  int num_right() const { return num_right_; }
  // Numbers (from 1) of prompts with failed answers, and the reason of the first failure.
  const std::vector<size_t>& failed() const { return failed_; }
  const std::string& failure() const { return failure_; }

 private:
  struct Entry {
    Prompt prompt;
    size_t number;  // of the prompt, from 1; it may have several completions
    std::string text;
    size_t shown = 0;  // bytes of text that have been printed
    bool started = false, finished = false;
    std::string json;  // the complete object
    nlohmann::ordered_json logprobs, prompt_logprobs;
  };
  void show();
  void finish(Entry& entry, const RequestOutput& output);
  void start_text(const Entry& entry) const;
  void end_text(const Entry& entry) const;

  std::vector<Entry> entries_;
  OutputFormat format_;
  bool has_text_;
  bool on_terminal_;
  size_t turn_ = 0;
  int num_answers_ = 0, num_right_ = 0;
  std::vector<size_t> failed_;
  std::string failure_;
};

// Describes the weight formats of linear layers and the kernels that read them. Empty for plain weights.
std::string weights_line(const ExecutorInfo& info, bool deterministic);
// Logs the engine's model, backend with the reason for its choice, and KV pool.
void print_start(const EngineInfo& info);
void print_start(const EmbedderInfo& info);
// Logs speed and peak usage of the KV pool.
void print_end(const Engine& engine);

}  // namespace attend::cli
