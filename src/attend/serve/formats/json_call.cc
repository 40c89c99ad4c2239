#include "attend/serve/formats/json_call.h"

#include <utility>

#include "attend/checkpoint/parse_json.h"
#include "attend/serve/formats/held_back.h"

namespace attend::serve {
namespace {

std::optional<std::string> parse_json_string(const std::string& json) {
  const Json value = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

}  // namespace

size_t JsonCall::push(std::string_view text) {
  size_t num_read = 0;
  while (num_read < text.size() && state_ == State::kOpen) {
    const char byte = text[num_read];
    const bool was_named = name_.has_value();
    while (state_ == State::kOpen && !take(byte)) {
    }
    if (state_ == State::kFailed) break;
    raw_ += byte;
    ++num_read;
    if (name_.has_value() && !was_named) break;
  }
  return num_read;
}

std::string JsonCall::release_arguments() { return std::exchange(arguments_, {}); }

bool JsonCall::take(char byte) {
  switch (place_) {
    case Place::kStart:
      if (is_space(byte)) return true;
      if (byte != '{') fail();
      place_ = Place::kKey;
      return true;
    case Place::kKey:
      if (is_space(byte) || byte == ',') return true;
      if (byte == '"') {
        key_.assign(1, byte);
        place_ = Place::kInKey;
      } else if (byte == '}' && name_) {
        if (!has_arguments_) arguments_ += "{}";
        state_ = State::kDone;
      } else {
        fail();
      }
      return true;
    case Place::kInKey:
      key_ += byte;
      if (escaped_)
        escaped_ = false;
      else if (byte == '\\')
        escaped_ = true;
      else if (byte == '"')
        place_ = Place::kColon;
      return true;
    case Place::kColon:
      if (is_space(byte)) return true;
      if (byte != ':') fail();
      place_ = Place::kValue;
      return true;
    case Place::kValue:
      if (is_space(byte)) return true;
      begin_value(byte);
      return true;
    case Place::kInValue:
      return consume_value_byte(byte);
    case Place::kAfterValue:
      if (is_space(byte)) return true;
      if (byte != ',' && byte != '}') fail();
      place_ = Place::kKey;
      return byte == ',';
  }
  return true;
}

void JsonCall::begin_value(char byte) {
  const std::string key = parse_json_string(key_).value_or("");
  role_ = key == "name"                               ? Role::kName
          : key == "arguments" || key == "parameters" ? Role::kArguments
                                                      : Role::kOther;
  // The first occurrence of each key counts.
  if ((role_ == Role::kName && name_) || (role_ == Role::kArguments && has_arguments_)) role_ = Role::kOther;
  if (role_ == Role::kArguments) has_arguments_ = true;
  value_.clear();
  depth_ = 0;
  in_string_ = escaped_ = false;
  is_object_ = byte == '{';
  is_scalar_ = byte != '{' && byte != '[' && byte != '"';
  place_ = Place::kInValue;
  if (byte == ',' || byte == '}' || byte == ']' || byte == ':') return fail();
  consume_value_byte(byte);
}

bool JsonCall::consume_value_byte(char byte) {
  if (is_scalar_ && (byte == ',' || byte == '}' || is_space(byte))) {
    end_value();
    return false;
  }
  // Arguments that are an object are passed on immediately.
  if (role_ == Role::kArguments && is_object_)
    arguments_ += byte;
  else if (role_ != Role::kOther)
    value_ += byte;
  if (in_string_) {
    if (escaped_)
      escaped_ = false;
    else if (byte == '\\')
      escaped_ = true;
    else if (byte == '"')
      in_string_ = false;
  } else if (byte == '"') {
    in_string_ = true;
  } else if (byte == '{' || byte == '[') {
    ++depth_;
  } else if (byte == '}' || byte == ']') {
    --depth_;
  }
  if (!is_scalar_ && depth_ == 0 && !in_string_) end_value();
  return true;
}

void JsonCall::end_value() {
  place_ = Place::kAfterValue;
  if (role_ == Role::kName) {
    name_ = parse_json_string(value_);
    if (!name_) fail();
  } else if (role_ == Role::kArguments && !value_.empty()) {
    if (value_ == "null")
      arguments_ += "{}";
    else
      arguments_ += parse_json_string(value_).value_or(value_);
  }
}

CallRead JsonCallReader::read(std::string& pending, AnswerParts& parts) {
  for (size_t num_read = 1; num_read > 0 && call_.state() == JsonCall::State::kOpen;) {
    num_read = call_.push(pending);
    pending.erase(0, num_read);
    if (emitted_ || !call_.name()) continue;
    if (find_tool(tools_, *call_.name()) == nullptr) return put_back(pending);
    parts.add(AnswerPart::Kind::kCall, *call_.name());
    emitted_ = true;
  }
  if (emitted_) parts.add(AnswerPart::Kind::kArguments, call_.release_arguments());
  if (call_.state() == JsonCall::State::kOpen) return CallRead::kMore;
  if (call_.state() == JsonCall::State::kFailed && !emitted_) return put_back(pending);
  return CallRead::kDone;
}

}  // namespace attend::serve
