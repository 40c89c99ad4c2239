// Prompts from the command line and from files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attend::cli {

struct Prompt {
  std::string text;                   // empty when the prompt came as ids
  std::vector<int32_t> input_ids;     // empty: encode the text
  std::optional<std::string> answer;  // the completion that would be right, to check against
};

// One prompt per line: JSON lines (objects with "prompt" or "input_ids", and perhaps "answer") when the first
// line starts with '{', plain text otherwise. Empty lines are skipped. Throws Error naming file, line and
// field for anything else: a line that is not UTF-8, or an object that holds both.
std::vector<Prompt> read_prompts_file(const std::filesystem::path& path);

}  // namespace attend::cli
