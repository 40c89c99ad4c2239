#include "attend/serve/formats/held_back.h"
#include "attend/serve/formats/json_call.h"
#include "attend/serve/formats/tool_format.h"

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;

// Calls in sequence, separated by ";", with no text before them.
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
    else if (place_ == Place::kCall && !call_->emitted())
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
      case CallRead::kMore:
        return false;
      case CallRead::kDone:
        has_calls_ = true;
        place_ = Place::kBefore;
        return true;
      case CallRead::kNoCall:
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
  std::string before_;  // spaces, ";" and the tag before the call that is being read
  bool has_calls_ = false;
};

constexpr std::string_view kLlama3Names[] = {"llama3", "llama3_json"};

}  // namespace

constexpr ToolFormat kLlama3Format = {
    .names = kLlama3Names,
    .is_in_template =
        [](std::string_view text) {
          const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
          return has("<|python_tag|>") || (has("\"parameters\"") && has("<|eot_id|>"));
        },
    .make_parser = [](const std::vector<Tool>& tools) -> std::unique_ptr<AnswerParser> {
      return std::make_unique<Llama3Parser>(tools);
    },
    .call_tag =
        [](const std::string& tool, const Json& schema) {
          return json_call_tag("{\"name\": \"" + tool + "\", \"parameters\": ", schema, "}");
        },
    .separator = "; "};

}  // namespace attend::serve
