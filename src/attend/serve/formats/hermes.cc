#include "attend/serve/formats/json_call.h"
#include "attend/serve/formats/tagged_calls.h"
#include "attend/serve/formats/tool_format.h"

namespace attend::serve {
namespace {

class HermesParser final : public TaggedParser {
 public:
  explicit HermesParser(const std::vector<Tool>& tools) : tools_(tools) {}

 protected:
  void begin_call() override { call_ = std::make_unique<JsonCallReader>(tools_); }
  CallRead read_call(std::string& pending, AnswerParts& parts) override {
    return call_->read(pending, parts);
  }
  bool has_output() const override { return call_->emitted(); }
  std::string pending_text() const override { return call_->raw(); }

 private:
  const std::vector<Tool>& tools_;
  std::unique_ptr<JsonCallReader> call_;
};

constexpr std::string_view kHermesNames[] = {"qwen25", "qwen", "hermes"};

}  // namespace

constexpr ToolFormat kHermesFormat = {
    .names = kHermesNames,
    .is_in_template =
        [](std::string_view text) {
          return text.find("<tool_call>") != text.npos && text.find("<function=") == text.npos;
        },
    .make_parser = [](const std::vector<Tool>& tools) -> std::unique_ptr<AnswerParser> {
      return std::make_unique<HermesParser>(tools);
    },
    .call_tag =
        [](const std::string& tool, const Json& schema) {
          return json_call_tag("<tool_call>\n{\"name\": \"" + tool + "\", \"arguments\": ", schema,
                               "}\n</tool_call>");
        },
    .separator = "\n"};

}  // namespace attend::serve
