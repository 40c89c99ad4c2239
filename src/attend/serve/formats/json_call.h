// Incremental readers of JSON calls, {"name": ..., "arguments": {...}}. JsonCall parses one call;
// JsonCallReader converts it to parts of an answer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/serve/formats/literal_reader.h"
#include "attend/serve/formats/tool_format.h"

namespace attend::serve {

// Returns the JSON object that a value of "arguments" means which is not an object itself: null, or a string
// that contains an object, as some models write them. No value: the value means no object.
std::optional<std::string> to_arguments(const std::string& value);

// Keys of the name: "name" or "tool_name"; of the arguments: "arguments" or "parameters". If the arguments
// are a string that contains a JSON object, as some models write them, the string's content is returned. Text
// with other arguments than an object is not a call.
class JsonCall {
 public:
  enum class State { kOpen, kDone, kFailed };

  // Reads until the name is complete, then until the end of the object, or until the text is not a call.
  // Returns the number of bytes read.
  size_t push(std::string_view text);
  State state() const { return state_; }
  // Set when the name is complete.
  const std::optional<std::string>& name() const { return name_; }
  // Set when the arguments are known to be an object, or to be missing.
  bool has_object() const { return has_object_; }
  // Returns the JSON of the arguments that was read since the last call, in order.
  std::string release_arguments();
  // Ends the text: returns the JSON that completes the arguments; no value if they are not an object.
  std::optional<std::string> close();
  // Returns all text read so far.
  const std::string& raw() const { return raw_; }

 private:
  enum class Place { kStart, kKey, kInKey, kColon, kValue, kInValue, kAfterValue };
  enum class Role { kName, kArguments, kOther };

  // Returns the number of bytes read: 0 or 1.
  size_t take(char byte);
  size_t take_literal(char byte);
  void begin_value(char byte);
  void end_value();
  size_t fail() {
    state_ = State::kFailed;
    return 0;
  }

  State state_ = State::kOpen;
  Place place_ = Place::kStart;
  Role role_ = Role::kOther;
  LiteralReader literal_;  // key or value that is being read
  std::string raw_, key_, value_;
  std::string arguments_;  // not released yet
  bool has_arguments_ = false, has_object_ = false;
  bool passes_on_ = false;  // the value is an object of arguments, which is passed on while it is read
  std::optional<std::string> name_;
};

// Reads one JSON call: emits the name when it is a tool's name and an object of arguments begins, and the
// arguments while they arrive.
class JsonCallReader {
 public:
  explicit JsonCallReader(const std::vector<Tool>& tools) : tools_(tools) {}

  // Removes what it reads from the front of `pending`. If the text is not a call, restores `pending`.
  CallRead read(std::string& pending, AnswerParts& parts);
  // Ends the text, which the model ended if `complete`. Returns false if it is not a call.
  bool finish(bool complete, AnswerParts& parts);
  bool emitted() const { return emitted_; }
  const std::string& raw() const { return call_.raw(); }

 private:
  CallRead put_back(std::string& pending) const {
    pending.insert(0, call_.raw());
    return CallRead::kNoCall;
  }

  const std::vector<Tool>& tools_;
  JsonCall call_;
  bool emitted_ = false;
};

}  // namespace attend::serve
