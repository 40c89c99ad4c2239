// Input: a prompts file of text lines or JSON lines.
#include "attend/cli/prompts.h"
#include "attend/text/tokenizer/utf8.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attend;
  fuzz::write_file("prompts", fuzz::text_of(data, size));
  fuzz::may_reject([] {
    const auto prompts = cli::read_prompts_file(fuzz::folder() / "prompts", {});
    fuzz::expect(!prompts.empty());
    for (const cli::Prompt& prompt : prompts) {
      fuzz::expect(tokenizer::is_valid_utf8(prompt.text));
      fuzz::expect(prompt.input_ids.empty() || prompt.text.empty());
      for (const int32_t id : prompt.input_ids) fuzz::expect(id >= 0);
      check(prompt.params);
    }
  });
  return 0;
}
