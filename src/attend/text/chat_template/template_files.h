// The files of a model directory that hold chat templates and name special tokens.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attend::chat {

struct TemplateSource {
  std::string where;  // for messages
  std::string name;   // "default" where it has none
  std::string text;   // valid UTF-8
};

// See ChatTemplate::find; empty if there are none.
std::vector<TemplateSource> find_templates(const std::filesystem::path& directory,
                                           const std::string& asked_for);

// "bos_token" and the other roles of tokenizer_config.json, with their texts.
std::vector<std::pair<std::string, std::string>> read_special_tokens(const std::filesystem::path& directory);

}  // namespace attend::chat
