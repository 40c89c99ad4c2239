// Input: a chat template, a NUL byte, and the template's variables.
#include <cstring>

#include "attend/text/chat_template/chat_template.h"
#include "attend/text/tokenizer/utf8.h"
#include "tests/fuzz/fuzz.h"

namespace attend::fuzz {
namespace {

constexpr const char* kTalk = R"({"messages": [{"role": "user", "content": "a <|end|> b"},
  {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}], "tools": [{"a": [1]}]})";

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::from_path(ATTEND_SOURCE_DIR "/models/attend-tiny");
  return tokenizer;
}

}  // namespace
}  // namespace attend::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attend;
  const std::string_view text = fuzz::text_of(data, size);
  const size_t split = text.find('\0');
  fuzz::write_file("template.jinja", text.substr(0, split));
  const std::string variables(split == text.npos ? fuzz::kTalk : text.substr(split + 1));
  fuzz::may_reject([&] {
    const ChatTemplate chat =
        *ChatTemplate::find(fuzz::folder(), (fuzz::folder() / "template.jinja").string());
    std::string whole;
    for (const auto& part : chat.render(variables, true, 0)) {
      fuzz::expect(!part.text.empty() && tokenizer::is_valid_utf8(part.text));
      whole += part.text;
    }
    if (whole.size() > 4096) return;
    for (const int32_t id : chat.encode(fuzz::tiny(), variables, true, 0))
      fuzz::expect(id >= 0 && id < fuzz::tiny().vocab_size());
  });
  return 0;
}
