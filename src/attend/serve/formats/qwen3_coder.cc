#include "attend/serve/formats/tagged_calls.h"
#include "attend/serve/formats/tool_format.h"
#include "attend/serve/json/json_text.h"

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;

// Format: <function=NAME>, <parameter=KEY>, lines of the value, </parameter>, </function>.
class Qwen3CoderParser final : public TaggedParser {
 public:
  explicit Qwen3CoderParser(const std::vector<Tool>& tools) : tools_(tools) {}

 protected:
  void begin_call() override {
    tool_ = nullptr;
    num_parameters_ = 0;
  }
  bool has_output() const override { return tool_ != nullptr; }
  std::string pending_text() const override { return {}; }  // nothing is consumed before the name is complete

  CallRead read_call(std::string& pending, AnswerParts& parts) override {
    if (tool_ == nullptr) {
      const CallRead read = read_name(pending);
      if (read != CallRead::kDone) return read;
      parts.add(Kind::kCall, tool_->name);
    }
    for (;;) {
      const std::string_view text = trim_front(pending);
      if (text.starts_with(kEnd)) {
        parts.add(Kind::kArguments, num_parameters_ == 0 ? "{}" : "}");
        pending = text.substr(kEnd.size());
        return CallRead::kDone;
      }
      // Text that is neither is skipped.
      const size_t start = text.find(kParameter);
      if (const size_t end = text.find(kEnd); end < start) {
        pending = text.substr(end);
        continue;
      }
      const size_t name_end = text.find('>', start), end = text.find(kParameterEnd, name_end);
      if (start == text.npos || name_end == text.npos || end == text.npos) return CallRead::kMore;
      const size_t name_start = start + kParameter.size(), value_start = name_end + 1;
      add_parameter(text.substr(name_start, name_end - name_start),
                    text.substr(value_start, end - value_start), parts);
      pending = text.substr(end + kParameterEnd.size());
    }
  }

 private:
  static constexpr std::string_view kFunction = "<function=", kEnd = "</function>",
                                    kParameter = "<parameter=", kParameterEnd = "</parameter>";

  CallRead read_name(std::string& pending) {
    const std::string_view text = trim_front(pending);
    if (!text.starts_with(kFunction))
      return kFunction.starts_with(text) ? CallRead::kMore : CallRead::kNoCall;
    const size_t end = text.find('>');
    if (end == text.npos) return CallRead::kMore;
    tool_ = find_tool(tools_, text.substr(kFunction.size(), end - kFunction.size()));
    if (tool_ == nullptr) return CallRead::kNoCall;
    pending = text.substr(end + 1);
    return CallRead::kDone;
  }

  void add_parameter(std::string_view key, std::string_view value, AnswerParts& parts) {
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    std::string json = num_parameters_++ == 0 ? "{" : ", ";
    append_quoted(key, json);
    json += ": ";
    if (is_text(key) || !Json::accept(value))
      append_quoted(value, json);
    else
      json += value;
    parts.add(Kind::kArguments, json);
  }

  // Uses the tool's schema. Without a type there, the value is JSON if it looks like JSON.
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

constexpr std::string_view kQwen3CoderNames[] = {"qwen3_coder", "qwen3_xml"};

}  // namespace

constexpr ToolFormat kQwen3CoderFormat = {
    .names = kQwen3CoderNames,
    .is_in_template =
        [](std::string_view text) {
          return text.find("<tool_call>") != text.npos && text.find("<function=") != text.npos;
        },
    .make_parser = [](const std::vector<Tool>& tools) -> std::unique_ptr<AnswerParser> {
      return std::make_unique<Qwen3CoderParser>(tools);
    },
    .call_tag = [](const std::string& tool, const Json& schema) -> Json {
      return {{"type", "tag"},
              {"begin", "<tool_call>\n<function=" + tool + ">\n"},
              {"content", {{"type", "qwen_xml_parameter"}, {"json_schema", schema}}},
              {"end", "\n</function>\n</tool_call>"}};
    },
    .separator = "\n"};

}  // namespace attend::serve
