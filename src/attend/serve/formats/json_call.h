// Calls in JSON, {"name": ..., "arguments": {...}}, read as they come: JsonCall, and JsonCallReader, which
// makes parts of an answer of one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/serve/formats/tool_format.h"

namespace attend::serve {

// The arguments come as they were written. "parameters" are the same. Where they are a string that holds
// JSON, as some models write them, they are what it holds.
class JsonCall {
 public:
  enum class State { kOpen, kDone, kFailed };

  // Reads up to where the name is known, then up to the object's end, or to where it is none. Returns how
  // many bytes were read.
  size_t push(std::string_view text);
  State state() const { return state_; }
  // Once it is known.
  const std::optional<std::string>& name() const { return name_; }
  // What came since the last time, all of it JSON of the arguments in order.
  std::string release_arguments();
  // All that was read.
  const std::string& raw() const { return raw_; }

 private:
  enum class Place { kStart, kKey, kInKey, kColon, kValue, kInValue, kAfterValue };
  enum class Role { kName, kArguments, kOther };

  // False: the byte belongs to what comes next.
  bool take(char byte);
  bool consume_value_byte(char byte);
  void begin_value(char byte);
  void end_value();
  void fail() { state_ = State::kFailed; }

  State state_ = State::kOpen;
  Place place_ = Place::kStart;
  Role role_ = Role::kOther;
  std::string raw_, key_, value_;
  std::string arguments_;  // not taken yet
  bool has_arguments_ = false;
  std::optional<std::string> name_;
  // Of the value that is being read.
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, is_scalar_ = false, is_object_ = false;
};

// A call in JSON: says its name when it is known to be a tool's, and its arguments as they come.
class JsonCallReader {
 public:
  explicit JsonCallReader(const std::vector<Tool>& tools) : tools_(tools) {}

  // Takes what it reads from the front of `pending`; puts it back where it is no call.
  CallRead read(std::string& pending, AnswerParts& parts);
  bool said() const { return said_; }
  const std::string& raw() const { return call_.raw(); }

 private:
  CallRead put_back(std::string& pending) const {
    pending.insert(0, call_.raw());
    return CallRead::kNoCall;
  }

  const std::vector<Tool>& tools_;
  JsonCall call_;
  bool said_ = false;
};

}  // namespace attend::serve
