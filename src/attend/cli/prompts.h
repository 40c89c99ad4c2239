// Prompts from the command line and from files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "attend/cli/options/sampling_options.h"

namespace attend::cli {

struct Prompt {
  std::string text;                   // empty when the prompt came as ids
  std::vector<int32_t> input_ids;     // empty: encode the text
  std::optional<std::string> answer;  // the completion that would be right, to check against
  SamplingParams params;
  int priority = 0;                    // with --schedule-policy priority: higher ones go first
  std::optional<double> timeout = {};  // seconds after which its answer ends, whether it is complete or not
};

// One prompt per line: JSON lines (objects with "prompt" or "input_ids", and perhaps "answer", "priority" and
// "timeout") when the first line starts with '{', plain text otherwise. Empty lines are skipped. Objects may
// hold what with_fields() reads, which wins over `sampling`. Throws Error naming file, line and field for
// anything else: a line that is not UTF-8, or an object that holds both.
std::vector<Prompt> read_prompts_file(const std::filesystem::path& path, const SamplingChoice& sampling);

// One prompt: the whole file, without the end of its last line. Throws Error naming the file where it is
// empty, not UTF-8, can not be read, or is more than `context_length` tokens can be.
Prompt read_prompt_file(const std::filesystem::path& path, const SamplingChoice& sampling,
                        int context_length);

}  // namespace attend::cli
