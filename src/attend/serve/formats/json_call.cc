#include "attend/serve/formats/json_call.h"

#include <utility>

#include "attend/serve/formats/held_back.h"

namespace attend::serve {
namespace {

std::optional<std::string> parse_json_string(const std::string& json) {
  const Json value = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

}  // namespace

std::optional<std::string> to_arguments(const std::string& value) {
  if (value == "null") return "{}";
  const std::optional<std::string> text = parse_json_string(value);
  if (!text) return std::nullopt;
  LiteralReader inner;
  inner.push(*text);
  std::string json = inner.release();
  json += inner.close();
  const std::string_view object = trim_front(json);
  if (object.empty() || object == "null") return "{}";
  if (object.front() != '{') return std::nullopt;
  return json;
}

size_t JsonCall::push(std::string_view text) {
  size_t num_read = 0;
  while (num_read < text.size() && state_ == State::kOpen) {
    const bool was_named = name_.has_value();
    const size_t used = take(text[num_read]);
    raw_.append(text.substr(num_read, used));
    num_read += used;
    if (name_.has_value() && !was_named) break;
  }
  return num_read;
}

std::string JsonCall::release_arguments() { return std::exchange(arguments_, {}); }

std::optional<std::string> JsonCall::close() {
  if (state_ == State::kDone) return "";
  state_ = State::kDone;
  if (passes_on_) return literal_.close();
  const bool in_arguments = role_ == Role::kArguments && place_ == Place::kInValue;
  if (!in_arguments) return has_object_ ? "" : "{}";
  const std::string value = value_ + literal_.close();
  return value.empty() ? "{}" : to_arguments(value);
}

// Returns 0 if the state has changed and the byte is to be taken again.
size_t JsonCall::take(char byte) {
  switch (place_) {
    case Place::kStart:
      if (is_space(byte)) return 1;
      if (byte != '{') return fail();
      place_ = Place::kKey;
      return 1;
    case Place::kKey:
      if (is_space(byte) || byte == ',') return 1;
      if (byte == '"' || byte == '\'') {
        literal_ = LiteralReader();
        key_.clear();
        place_ = Place::kInKey;
        return 0;
      }
      if (byte != '}' || !name_) return fail();
      if (!has_arguments_) arguments_ += "{}";
      has_object_ = true;
      state_ = State::kDone;
      return 1;
    case Place::kInKey:
    case Place::kInValue:
      return take_literal(byte);
    case Place::kColon:
      if (is_space(byte)) return 1;
      if (byte != ':') return fail();
      place_ = Place::kValue;
      return 1;
    case Place::kValue:
      if (is_space(byte)) return 1;
      begin_value(byte);
      return 0;
    case Place::kAfterValue:
      if (is_space(byte)) return 1;
      if (byte != ',' && byte != '}') return fail();
      place_ = Place::kKey;
      return byte == ',' ? 1 : 0;
  }
  return fail();
}

size_t JsonCall::take_literal(char byte) {
  const size_t used = literal_.push({&byte, 1});
  std::string json = literal_.release();
  if (place_ == Place::kInKey)
    key_ += json;
  else if (passes_on_)
    arguments_ += json;
  else if (role_ != Role::kOther)
    value_ += json;
  if (literal_.state() == LiteralReader::State::kFailed) return fail();
  if (literal_.state() == LiteralReader::State::kDone) {
    if (place_ == Place::kInKey)
      place_ = Place::kColon;
    else
      end_value();
  }
  return used;
}

void JsonCall::begin_value(char byte) {
  const std::string key = parse_json_string(key_).value_or("");
  role_ = key == "name" || key == "tool_name"         ? Role::kName
          : key == "arguments" || key == "parameters" ? Role::kArguments
                                                      : Role::kOther;
  // The first occurrence of each key counts.
  if ((role_ == Role::kName && name_) || (role_ == Role::kArguments && has_arguments_)) role_ = Role::kOther;
  if (role_ == Role::kArguments) has_arguments_ = true;
  value_.clear();
  literal_ = LiteralReader();
  passes_on_ = role_ == Role::kArguments && byte == '{';
  has_object_ |= passes_on_;
  place_ = Place::kInValue;
}

void JsonCall::end_value() {
  place_ = Place::kAfterValue;
  if (role_ == Role::kName) {
    name_ = parse_json_string(value_);
    if (!name_) fail();
  } else if (role_ == Role::kArguments && !passes_on_) {
    const std::optional<std::string> object = to_arguments(value_);
    arguments_ += object.value_or("");
    has_object_ = object.has_value();
    if (!object) fail();
  }
  passes_on_ = false;
}

CallRead JsonCallReader::read(std::string& pending, AnswerParts& parts) {
  for (size_t num_read = 1; num_read > 0 && call_.state() == JsonCall::State::kOpen;) {
    num_read = call_.push(pending);
    pending.erase(0, num_read);
    if (emitted_ || !call_.name()) continue;
    if (find_tool(tools_, *call_.name()) == nullptr) return put_back(pending);
    if (!call_.has_object()) continue;
    parts.add(AnswerPart::Kind::kCall, *call_.name());
    emitted_ = true;
  }
  if (emitted_) parts.add(AnswerPart::Kind::kArguments, call_.release_arguments());
  if (call_.state() == JsonCall::State::kOpen) return CallRead::kMore;
  if (call_.state() == JsonCall::State::kFailed) {
    if (!emitted_) return put_back(pending);
    finish(/*complete=*/true, parts);
  }
  return CallRead::kDone;
}

bool JsonCallReader::finish(bool complete, AnswerParts& parts) {
  if (!emitted_ && (!call_.name() || !find_tool(tools_, *call_.name()))) return false;
  const std::optional<std::string> rest = call_.close();
  if (!emitted_ && !rest) return false;
  if (!emitted_) parts.add(AnswerPart::Kind::kCall, *call_.name());
  emitted_ = true;
  if (complete) parts.add(AnswerPart::Kind::kArguments, rest.value_or(""));
  return true;
}

}  // namespace attend::serve
