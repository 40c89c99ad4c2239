// Input: tokenizer.json, a NUL byte, and tokenizer_config.json. A tokenizer that is accepted must encode and
// decode.
#include "tests/fuzz/check_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attend;
  const std::string_view text = fuzz::text_of(data, size);
  const size_t split = text.find('\0');
  fuzz::write_file("tokenizer.json", text.substr(0, split));
  std::filesystem::remove(fuzz::folder() / "tokenizer_config.json");
  if (split != text.npos) fuzz::write_file("tokenizer_config.json", text.substr(split + 1));
  fuzz::may_reject([] {
    const Tokenizer tokenizer = Tokenizer::from_path(fuzz::folder());
    for (const char* sample :
         {"", "Hello, world's  best  12345!\n", "<s>a</s> \xc3\xa9\xe2\x96\x81\xf0\x9f\x98\x80",
          "\xff\xfe broken \xe2\x96", "def f(x):\n\treturn x ** 2"})
      fuzz::check_text(tokenizer, sample);
  });
  return 0;
}
