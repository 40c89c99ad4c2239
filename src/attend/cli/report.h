// What `attend generate` prints: completions in the order of the prompts, while they are generated.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "attend/cli/prompts.h"
#include "attend/engine/embedder.h"
#include "attend/engine/engine.h"

namespace attend::cli {

enum class OutputFormat { kText, kJson };

// A prompt has an entry for each of its completions, which finish in any order. The first that is not
// finished streams; what comes after it is kept until its turn.
class Report {
 public:
  // `has_text`: whether the outputs come with text. Without a tokenizer their ids are the completion.
  Report(const std::vector<Prompt>& prompts, OutputFormat format, bool has_text);

  // Output of entry `i`. A step's text is shown at once when it is this entry's turn.
  void add(size_t i, const RequestOutput& output);
  bool done() const { return turn_ == entries_.size(); }

  // How many prompts brought an answer, and how many of those were completed right.
  int num_answers() const { return num_answers_; }
  int num_right() const { return num_right_; }
  // The numbers (from 1) of prompts whose answers ended before their end, and why the first did.
  const std::vector<size_t>& failed() const { return failed_; }
  const std::string& failure() const { return failure_; }

 private:
  struct Entry {
    Prompt prompt;
    size_t number;  // of the prompt, from 1; it may have several completions
    std::string text;
    size_t shown = 0;  // bytes of text that are printed
    bool started = false, finished = false;
    std::string json;  // the finished object
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

// What the weights of linear layers are, and which kernels read them; of plain ones nothing.
std::string weights_line(const ExecutorInfo& info, bool deterministic);
// The engine at start: model, backend and why, KV pool. On stderr.
void print_start(const EngineInfo& info);
void print_start(const EmbedderInfo& info);
// Speed and how full the KV pool got. On stderr.
void print_end(const Engine& engine);

}  // namespace attend::cli
