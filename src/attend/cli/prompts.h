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
  std::string text;                   // empty if the prompt is input_ids
  std::vector<int32_t> input_ids;     // empty: encode the text
  std::optional<std::string> answer;  // expected completion, to check the result
  SamplingParams params;
  int priority = 0;                         // for --schedule-policy priority: higher values run first
  std::optional<std::string> adapter = {};  // LoRA adapter; empty: none; not given: that of the command
  std::optional<double> timeout = {};       // seconds after which its answer ends, complete or not
};

// Reads one prompt per line. If the first line starts with '{', lines are JSON objects with "prompt" or
// "input_ids", and optionally "answer", "priority", "lora_path" and "timeout"; otherwise they are plain text.
// Empty lines are skipped. Objects may contain the fields that with_fields() reads, which override
// `sampling`. Throws Error that names file, line and field for other contents: a line that is not UTF-8, or
// an object with both "prompt" and "input_ids".
std::vector<Prompt> read_prompts_file(const std::filesystem::path& path, const SamplingChoice& sampling);

// Reads the complete file as one prompt, without the end of its last line. Throws Error that names the file
// if it is empty, not UTF-8, cannot be read, or has more bytes than `context_length` tokens can have.
Prompt read_prompt_file(const std::filesystem::path& path, const SamplingChoice& sampling,
                        int context_length);

}  // namespace attend::cli
