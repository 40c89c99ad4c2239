// What `attend generate` prints: completions in the order of the prompts, while they are generated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attend/cli/prompts.h"
#include "attend/engine/engine.h"

namespace attend::cli {

enum class OutputFormat { kText, kJson };

// Requests finish in any order. The first prompt that is not finished streams; what comes after it is kept
// until its turn.
class Report {
 public:
  Report(std::vector<Prompt> prompts, OutputFormat format);

  // Output of prompt `i`. A step's text is shown at once when it is this prompt's turn.
  void add(size_t i, const StepOutput& output);
  bool done() const { return turn_ == entries_.size(); }

  // How many prompts brought an answer, and how many of those were completed right.
  int num_answers() const { return num_answers_; }
  int num_right() const { return num_right_; }
  // The numbers (from 1) of prompts that ended because the model gave no numbers for them.
  const std::vector<size_t>& failed() const { return failed_; }

 private:
  struct Entry {
    Prompt prompt;
    std::string text;
    size_t shown = 0;  // bytes of text that are printed
    bool started = false, finished = false;
    std::string json;  // the finished object
  };
  void show();
  void finish(Entry& entry, const StepOutput& output);
  void start_text(const Entry& entry, size_t number) const;
  void end_text(const Entry& entry) const;

  std::vector<Entry> entries_;
  OutputFormat format_;
  size_t turn_ = 0;
  int num_answers_ = 0, num_right_ = 0;
  std::vector<size_t> failed_;
};

// The middle of a long text replaced by its length.
std::string elide(std::string_view text, size_t max_chars);

// The engine at start: model, backend and why, KV pool. On stderr.
void print_start(const EngineInfo& info);
// Speed and how full the KV pool got. On stderr.
void print_end(const Engine& engine);

}  // namespace attend::cli
