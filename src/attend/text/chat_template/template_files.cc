#include "attend/text/chat_template/template_files.h"

#include <algorithm>

#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/json.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::chat_template {
namespace {

std::string checked(std::string text, const std::string& where) {
  if (text.size() > kMaxTemplateBytes)
    fail(ErrorCode::kCorruptFile, where, ": ", text.size(), " bytes, expected a template of at most ",
         kMaxTemplateBytes);
  if (!tokenizer::is_valid_utf8(text)) fail(ErrorCode::kCorruptFile, where, ": expected UTF-8 text");
  return text;
}

std::string read_template_file(const std::filesystem::path& path) {
  return checked(read_file(path, kMaxTemplateBytes), path.string());
}

// Reads tokenizer_config.json's templates: one template, or a list of {"name", "template"}.
void read_config_templates(const JsonNode& config, std::vector<TemplateSource>& sources) {
  const auto node = config.find("chat_template");
  if (!node) return;
  if (node->value().is_string()) {
    sources.push_back({node->where(), "default", checked(node->string(), node->where())});
    return;
  }
  for (size_t i = 0; i < node->array_size(); ++i) {
    const JsonNode text = node->at(i).at("template");
    sources.push_back({text.where(), node->at(i).at("name").string(), checked(text.string(), text.where())});
  }
}

// Reads additional_chat_templates/NAME.jinja of a folder, sorted by name.
void read_additional_templates(const std::filesystem::path& folder, std::vector<TemplateSource>& sources) {
  constexpr size_t kMaxTemplates = 64;
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "additional_chat_templates", error))
    if (entry.path().extension() == ".jinja" && files.size() < kMaxTemplates) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files)
    sources.push_back({file.string(), file.stem().string(), read_template_file(file)});
}

std::string join_names(const std::vector<TemplateSource>& sources) {
  std::string names;
  for (const TemplateSource& source : sources) names += (names.empty() ? "" : ", ") + source.name;
  return names.empty() ? "none" : names;
}

}  // namespace

std::vector<TemplateSource> find_templates(const Checkpoint& checkpoint, const std::string& name_or_path) {
  std::error_code error;
  if (!name_or_path.empty() && std::filesystem::is_regular_file(name_or_path, error))
    return {{name_or_path, "default", read_template_file(name_or_path)}};
  std::vector<TemplateSource> sources;
  if (auto own = checkpoint.chat_template()) {
    sources.push_back({own->where, "default", checked(std::move(own->text), own->where)});
  } else if (const auto config = checkpoint.find(CheckpointDocument::kTokenizerConfig)) {
    read_config_templates(*config, sources);
  }
  read_additional_templates(checkpoint.path(), sources);
  if (name_or_path.empty()) return sources;
  for (TemplateSource& source : sources)
    if (source.name == name_or_path) return {{source.where, "default", std::move(source.text)}};
  if (file_exists(name_or_path)) (void)read_template_file(name_or_path);  // throws the specific error
  fail(ErrorCode::kNotFound, "--chat-template ", name_or_path,
       ": no such file, and the model's templates are: ", join_names(sources));
}

std::vector<std::pair<std::string, std::string>> read_special_tokens(const Checkpoint& checkpoint) {
  std::vector<std::pair<std::string, std::string>> tokens;
  const auto config = checkpoint.find(CheckpointDocument::kTokenizerConfig);
  const auto map = checkpoint.find(CheckpointDocument::kSpecialTokens);
  for (const char* role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    std::optional<JsonNode> node = config ? config->find(role) : std::nullopt;
    if (!node && map) node = map->find(role);
    if (node)
      tokens.emplace_back(role, node->value().is_string() ? node->string() : node->at("content").string());
  }
  return tokens;
}

}  // namespace attend::chat_template
