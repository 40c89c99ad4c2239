// Calls of tools in the text of an answer, by format.
#include <algorithm>
#include <utility>

#include "attend/checkpoint/parse_json.h"
#include "attend/serve/formats/answer_parser.h"
#include "attend/serve/formats/held_back.h"
#include "attend/serve/formats/json_call.h"
#include "attend/serve/protocols/json_text.h"

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;
enum class Read { kMore, kDone, kNoCall };

const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name) {
  const auto found = std::ranges::find_if(tools, [&](const Tool& tool) { return tool.name == name; });
  return found == tools.end() ? nullptr : &*found;
}

// A call in JSON: says its name when it is known to be a tool's, and its arguments as they come.
class JsonCallReader {
 public:
  explicit JsonCallReader(const std::vector<Tool>& tools) : tools_(tools) {}

  // Takes what it reads from the front of `pending`; puts it back where it is no call.
  Read read(std::string& pending, AnswerParts& parts) {
    for (size_t num_read = 1; num_read > 0 && call_.state() == JsonCall::State::kOpen;) {
      num_read = call_.push(pending);
      pending.erase(0, num_read);
      if (said_ || !call_.name()) continue;
      if (find_tool(tools_, *call_.name()) == nullptr) return put_back(pending);
      parts.add(Kind::kCall, *call_.name());
      said_ = true;
    }
    if (said_) parts.add(Kind::kArguments, call_.take_arguments());
    if (call_.state() == JsonCall::State::kOpen) return Read::kMore;
    if (call_.state() == JsonCall::State::kFailed && !said_) return put_back(pending);
    return Read::kDone;
  }
  bool said() const { return said_; }
  const std::string& raw() const { return call_.raw(); }

 private:
  Read put_back(std::string& pending) const {
    pending.insert(0, call_.raw());
    return Read::kNoCall;
  }

  const std::vector<Tool>& tools_;
  JsonCall call_;
  bool said_ = false;
};

// Calls between <tool_call> and </tool_call>, and text around them. Spaces next to a call are no text.
class TaggedParser : public AnswerParser {
 public:
  void push(std::string_view text, AnswerParts& parts) final {
    pending_ += text;
    for (bool goes_on = true; goes_on;) {
      switch (place_) {
        case Place::kText:
          goes_on = read_text(parts);
          break;
        case Place::kCall:
          goes_on = read_one(parts);
          break;
        case Place::kBehindCall:
          goes_on = skip_to_end();
          break;
      }
    }
  }

  void finish(AnswerParts& parts) final {
    if (place_ == Place::kCall && !has_said()) {
      parts.add(Kind::kText, spaces_);
      parts.add(Kind::kText, kOpen);
      parts.add(Kind::kText, unsaid() + pending_);
    } else if (place_ == Place::kText && !(has_calls_ && trim_front(pending_).empty())) {
      parts.add(Kind::kText, pending_);
    }
    pending_.clear();
  }

 protected:
  virtual void begin_call() = 0;
  // Takes what it reads from the front of `pending`; where it says kNoCall, `pending` is as it was at first.
  virtual Read read_call(std::string& pending, AnswerParts& parts) = 0;
  // Whether the call was given, and if not, what was taken of it.
  virtual bool has_said() const = 0;
  virtual std::string unsaid() const = 0;

 private:
  enum class Place { kText, kCall, kBehindCall };
  static constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";

  bool read_text(AnswerParts& parts) {
    const size_t open = pending_.find(kOpen);
    const bool found = open != std::string::npos;
    const size_t end = found ? open : pending_.size() - num_held_back(pending_, kOpen);
    const size_t size = trimmed_size(pending_, end);
    parts.add(Kind::kText, std::string_view(pending_).substr(0, size));
    if (found) {
      spaces_ = pending_.substr(size, open - size);
      place_ = Place::kCall;
      begin_call();
    }
    pending_.erase(0, found ? open + kOpen.size() : size);
    return found;
  }

  bool read_one(AnswerParts& parts) {
    switch (read_call(pending_, parts)) {
      case Read::kMore:
        return false;
      case Read::kDone:
        has_calls_ = true;
        place_ = Place::kBehindCall;
        return true;
      case Read::kNoCall:
        parts.add(Kind::kText, spaces_);
        parts.add(Kind::kText, kOpen);
        place_ = Place::kText;
        return true;
    }
    return false;
  }

  // A model may forget the end before it begins the next.
  bool skip_to_end() {
    const size_t close = pending_.find(kClose), open = pending_.find(kOpen);
    if (close == std::string::npos && open == std::string::npos) {
      const size_t kept = std::max(num_held_back(pending_, kClose), num_held_back(pending_, kOpen));
      pending_.erase(0, pending_.size() - kept);
      return false;
    }
    pending_.erase(0, close < open ? close + kClose.size() : open);
    place_ = Place::kText;
    return true;
  }

  Place place_ = Place::kText;
  std::string pending_;
  std::string spaces_;  // before the call that is being read
  bool has_calls_ = false;
};

class HermesParser final : public TaggedParser {
 public:
  explicit HermesParser(const std::vector<Tool>& tools) : tools_(tools) {}

 protected:
  void begin_call() override { call_ = std::make_unique<JsonCallReader>(tools_); }
  Read read_call(std::string& pending, AnswerParts& parts) override { return call_->read(pending, parts); }
  bool has_said() const override { return call_->said(); }
  std::string unsaid() const override { return call_->raw(); }

 private:
  const std::vector<Tool>& tools_;
  std::unique_ptr<JsonCallReader> call_;
};

// <function=NAME>, <parameter=KEY>, lines of its value, </parameter>, </function>.
class Qwen3CoderParser final : public TaggedParser {
 public:
  explicit Qwen3CoderParser(const std::vector<Tool>& tools) : tools_(tools) {}

 protected:
  void begin_call() override {
    tool_ = nullptr;
    num_parameters_ = 0;
  }
  bool has_said() const override { return tool_ != nullptr; }
  std::string unsaid() const override { return {}; }  // it takes nothing before it knows the name

  Read read_call(std::string& pending, AnswerParts& parts) override {
    if (tool_ == nullptr) {
      const Read read = read_name(pending);
      if (read != Read::kDone) return read;
      parts.add(Kind::kCall, tool_->name);
    }
    for (;;) {
      const std::string_view text = trim_front(pending);
      if (text.starts_with(kEnd)) {
        parts.add(Kind::kArguments, num_parameters_ == 0 ? "{}" : "}");
        pending = text.substr(kEnd.size());
        return Read::kDone;
      }
      // What is neither is passed over.
      const size_t start = text.find(kParameter);
      if (const size_t end = text.find(kEnd); end < start) {
        pending = text.substr(end);
        continue;
      }
      const size_t name_end = text.find('>', start), end = text.find(kParameterEnd, name_end);
      if (start == text.npos || name_end == text.npos || end == text.npos) return Read::kMore;
      const size_t name_start = start + kParameter.size(), value_start = name_end + 1;
      add_parameter(text.substr(name_start, name_end - name_start),
                    text.substr(value_start, end - value_start), parts);
      pending = text.substr(end + kParameterEnd.size());
    }
  }

 private:
  static constexpr std::string_view kFunction = "<function=", kEnd = "</function>",
                                    kParameter = "<parameter=", kParameterEnd = "</parameter>";

  Read read_name(std::string& pending) {
    const std::string_view text = trim_front(pending);
    if (!text.starts_with(kFunction)) return kFunction.starts_with(text) ? Read::kMore : Read::kNoCall;
    const size_t end = text.find('>');
    if (end == text.npos) return Read::kMore;
    tool_ = find_tool(tools_, text.substr(kFunction.size(), end - kFunction.size()));
    if (tool_ == nullptr) return Read::kNoCall;
    pending = text.substr(end + 1);
    return Read::kDone;
  }

  void add_parameter(std::string_view key, std::string_view value, AnswerParts& parts) {
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    std::string json = num_parameters_++ == 0 ? "{" : ", ";
    append_quoted(key, json);
    json += ": ";
    if (is_text(key) || !serve::Json::accept(value))
      append_quoted(value, json);
    else
      json += value;
    parts.add(Kind::kArguments, json);
  }

  // By the tool's schema; what that says nothing about is JSON if it looks like it.
  bool is_text(std::string_view key) const {
    const auto properties = tool_->parameters.find("properties");
    if (properties == tool_->parameters.end() || !properties->is_object()) return false;
    const auto property = properties->find(std::string(key));
    if (property == properties->end() || !property->is_object()) return false;
    return property->value("type", Json()) == "string";
  }

  const std::vector<Tool>& tools_;
  const Tool* tool_ = nullptr;
  int num_parameters_ = 0;
};

// Calls one after another with ; between, and nothing before them.
class Llama3Parser final : public AnswerParser {
 public:
  explicit Llama3Parser(const std::vector<Tool>& tools)
      : tools_(tools), call_(std::make_unique<JsonCallReader>(tools)) {}

  void push(std::string_view text, AnswerParts& parts) override {
    if (place_ == Place::kText) return parts.add(Kind::kText, text);
    pending_ += text;
    for (bool goes_on = true; goes_on;) {
      switch (place_) {
        case Place::kBefore:
          goes_on = read_start(parts);
          break;
        case Place::kCall:
          goes_on = read_call(parts);
          break;
        case Place::kText:
          goes_on = false;
          break;
      }
    }
  }

  void finish(AnswerParts& parts) override {
    if (place_ == Place::kBefore && !has_calls_)
      parts.add(Kind::kText, pending_);
    else if (place_ == Place::kCall && !call_->said())
      parts.add(Kind::kText, before_ + call_->raw() + pending_);
    pending_.clear();
  }

 private:
  enum class Place { kBefore, kCall, kText };
  static constexpr std::string_view kTag = "<|python_tag|>";

  bool read_start(AnswerParts& parts) {
    std::string_view text = trim_front(pending_);
    while (has_calls_ && (text.starts_with(';') || text.starts_with(','))) text = trim_front(text.substr(1));
    std::string_view object = text;
    if (!has_calls_ && text.starts_with(kTag)) object = trim_front(text.substr(kTag.size()));
    if (object.empty() || (!has_calls_ && kTag.starts_with(object))) return false;
    if (!object.starts_with('{')) return be_text(has_calls_ ? std::string(text) : pending_, parts);
    before_ = pending_.substr(0, pending_.size() - object.size());
    pending_ = object;
    call_ = std::make_unique<JsonCallReader>(tools_);
    place_ = Place::kCall;
    return true;
  }

  bool read_call(AnswerParts& parts) {
    switch (call_->read(pending_, parts)) {
      case Read::kMore:
        return false;
      case Read::kDone:
        has_calls_ = true;
        place_ = Place::kBefore;
        return true;
      case Read::kNoCall:
        return be_text(before_ + pending_, parts);
    }
    return false;
  }

  bool be_text(const std::string& text, AnswerParts& parts) {
    parts.add(Kind::kText, text);
    pending_.clear();
    place_ = Place::kText;
    return false;
  }

  const std::vector<Tool>& tools_;
  std::unique_ptr<JsonCallReader> call_;
  Place place_ = Place::kBefore;
  std::string pending_;
  std::string before_;  // spaces, ; and the tag, before the call that is being read
  bool has_calls_ = false;
};

}  // namespace

std::unique_ptr<AnswerParser> make_tool_parser(ToolFormat format, const std::vector<Tool>& tools) {
  switch (format) {
    case ToolFormat::kHermes:
      return std::make_unique<HermesParser>(tools);
    case ToolFormat::kLlama3:
      return std::make_unique<Llama3Parser>(tools);
    case ToolFormat::kQwen3Coder:
      return std::make_unique<Qwen3CoderParser>(tools);
  }
  return make_text_parser();
}

}  // namespace attend::serve
