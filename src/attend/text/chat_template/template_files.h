// Documents of a checkpoint that hold chat templates and name special tokens.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attend/checkpoint/checkpoint.h"

namespace attend::chat_template {

struct TemplateSource {
  std::string where;  // for messages
  std::string name;   // "default" where it has none
  std::string text;   // valid UTF-8
};

// See ChatTemplate::find; empty if there are none.
std::vector<TemplateSource> find_templates(const Checkpoint& checkpoint, const std::string& asked_for);

// "bos_token" and the other roles of tokenizer_config.json, with their texts.
std::vector<std::pair<std::string, std::string>> read_special_tokens(const Checkpoint& checkpoint);

}  // namespace attend::chat_template
