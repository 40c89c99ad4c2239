// Corrupted files are read or rejected with an Error; none crashes.
#include <gtest/gtest.h>

#include <random>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "tests/text/tokenizer/golden.h"
#include "tests/text/tokenizer/temp_folder.h"

namespace attend {
namespace {

using testing::TempFolder;

// Changes a few bytes, or deletes, duplicates or moves a range.
void mutate(std::string& text, std::mt19937& random) {
  const std::string_view bytes = "\"{}[]:,\\0129-abpPsSwu(*+?|.^$)\xFF\x80 ";
  const auto place = [&] { return text.empty() ? 0 : random() % text.size(); };
  for (unsigned n = 1 + random() % 4; n > 0; --n) {
    switch (random() % 5) {
      case 0:
      case 1:
        if (!text.empty()) text[place()] = bytes[random() % bytes.size()];
        break;
      case 2:
        text.insert(place(), 1, bytes[random() % bytes.size()]);
        break;
      case 3:
        text.erase(place(), 1 + random() % 8);
        break;
      default: {
        const std::string stretch = text.substr(place(), 1 + random() % 40);
        text.insert(place(), stretch);
      }
    }
  }
}

constexpr int kFiles = 60;  // per layout

class CorruptedTokenizer : public ::testing::TestWithParam<std::string> {};

TEST_P(CorruptedTokenizer, IsReadOrRejectedWithoutACrash) {
  set_log_level(LogLevel::kError);
  const std::string whole = testing::read_file(testing::golden_folder(GetParam()) + "/tokenizer.json");
  // Damage to the long vocabulary is mostly equivalent, so half of the mutations change the part before the
  // model.
  const size_t head = whole.find("\"model\"");
  ASSERT_NE(head, std::string::npos);
  const TempFolder folder;
  std::mt19937 random(7);
  int read = 0;
  for (int i = 0; i < kFiles; ++i) {
    std::string corrupted = whole;
    if (i % 2 == 0) {
      std::string front = corrupted.substr(0, head + 250);
      mutate(front, random);
      corrupted = front + corrupted.substr(head + 250);
    } else {
      mutate(corrupted, random);
    }
    folder.write("tokenizer.json", corrupted);
    try {
      const Tokenizer tokenizer = Tokenizer::from_path(folder.path());
      ++read;
      for (size_t t = random() % 7; t < testing::golden_texts().size(); t += 23) {
        tokenizer.decode(tokenizer.encode(testing::golden_texts()[t]), false);
      }
    } catch (const Error&) {
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, kFiles);
  set_log_level(LogLevel::kInfo);
}

INSTANTIATE_TEST_SUITE_P(Layouts, CorruptedTokenizer, ::testing::ValuesIn(testing::golden_layouts()),
                         [](const auto& layout) { return layout.param; });

}  // namespace
}  // namespace attend
