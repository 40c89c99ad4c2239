#include "attend/model/tokenizer/json_node.h"

#include <fstream>
#include <iterator>
#include <limits>

#include "attend/model/tokenizer/utf8.h"

namespace attend::tokenizer {

Json read_json_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ErrorCode::kNotFound, path.string(), ": can not be opened");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) fail(ErrorCode::kNotFound, path.string(), ": can not be read");
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    fail(ErrorCode::kCorruptFile, path.string(), ": not JSON: ", error.what());
  }
}

std::string JsonNode::where() const { return path_.empty() ? *file_ : *file_ + ": " + path_; }

JsonNode JsonNode::at(std::string_view key) const {
  std::optional<JsonNode> field = find(key);
  if (!field) corrupt("field \"", key, "\" is missing");
  return *std::move(field);
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!value_->is_object()) corrupt("is a JSON ", value_->type_name(), ", not an object");
  const auto field = value_->find(std::string(key));
  if (field == value_->end() || field->is_null()) return std::nullopt;
  return JsonNode(*field, *file_, path_.empty() ? std::string(key) : path_ + "." + std::string(key));
}

JsonNode JsonNode::at(size_t index) const {
  return JsonNode(value_->at(index), *file_, path_ + "[" + std::to_string(index) + "]");
}

size_t JsonNode::array_size() const {
  if (!value_->is_array()) corrupt("is a JSON ", value_->type_name(), ", not an array");
  return value_->size();
}

size_t JsonNode::object_size() const {
  if (!value_->is_object()) corrupt("is a JSON ", value_->type_name(), ", not an object");
  return value_->size();
}

const std::string& JsonNode::string() const {
  if (!value_->is_string()) corrupt("is a JSON ", value_->type_name(), ", not a string");
  return value_->get_ref<const std::string&>();
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) corrupt("is a JSON ", value_->type_name(), ", not true or false");
  return value_->get<bool>();
}

int32_t JsonNode::token_id() const {
  constexpr uint64_t kEnd = std::numeric_limits<int32_t>::max();
  // nlohmann-json keeps every integer that is not negative as unsigned.
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() >= kEnd) {
    corrupt("\"", value_->dump(-1, ' ', true, Json::error_handler_t::replace),
            "\" is no token id; ids are 0 to ", kEnd - 1);
  }
  return static_cast<int32_t>(value_->get<uint64_t>());
}

char32_t JsonNode::character() const {
  const std::string& text = string();
  if (text.empty() || read_char(text, 0).bytes != text.size()) corrupt("\"", text, "\" is not one character");
  return read_char(text, 0).code;
}

bool JsonNode::boolean_or(std::string_view key, bool missing) const {
  const std::optional<JsonNode> field = find(key);
  return field ? field->boolean() : missing;
}

}  // namespace attend::tokenizer
