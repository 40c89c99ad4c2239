// Chat templates and special tokens in the documents of a checkpoint.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attend/checkpoint/checkpoint.h"

namespace attend::chat_template {

struct TemplateSource {
  std::string where;  // origin, for messages
  std::string name;   // "default" if it has no name
  std::string text;   // valid UTF-8
};

// Like ChatTemplate::find; empty if there is no template.
std::vector<TemplateSource> find_templates(const Checkpoint& checkpoint, const std::string& name_or_path);

// Returns "bos_token" and the other roles of tokenizer_config.json, or else of
// special_tokens_map.json, with their texts.
std::vector<std::pair<std::string, std::string>> read_special_tokens(const Checkpoint& checkpoint);

}  // namespace attend::chat_template
