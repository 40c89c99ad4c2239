// Input: one byte that selects a layout of tests/data/tokenizers, and a text. Pairs of its bytes are also
// decoded as token ids.
#include <vector>

#include "tests/fuzz/check_tokenizer.h"

namespace attend::fuzz {
namespace {

const std::vector<Tokenizer>& tokenizers() {
  static const std::vector<Tokenizer> all = [] {
    set_log_level(LogLevel::kError);
    std::vector<std::filesystem::path> folders;
    for (const auto& entry : std::filesystem::directory_iterator(ATTEND_SOURCE_DIR "/tests/data/tokenizers"))
      if (entry.is_directory()) folders.push_back(entry.path());
    std::sort(folders.begin(), folders.end());
    std::vector<Tokenizer> read;
    for (const auto& folder : folders) read.push_back(Tokenizer::from_path(folder));
    return read;
  }();
  return all;
}

}  // namespace
}  // namespace attend::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attend;
  if (size == 0) return 0;
  const Tokenizer& tokenizer = fuzz::tokenizers()[data[0] % fuzz::tokenizers().size()];
  fuzz::check_text(tokenizer, fuzz::text_of(data + 1, size - 1));
  std::vector<int32_t> ids;
  for (size_t i = 1; i + 1 < size; i += 2) ids.push_back(data[i] | data[i + 1] << 8);
  fuzz::check_decode(tokenizer, ids, data[0] % 2 == 0);
  return 0;
}
