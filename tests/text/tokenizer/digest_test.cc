// Compares the tokenizer with the `tokenizers` library on 2,000 texts: many scripts, code, emoji, long runs
// and random bytes. scripts/make_tokenizer_digests.py wrote the expected digests; its option --show prints
// the tokens of a digest.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attend/text/tokenizer/tokenizer.h"
#include "tests/text/tokenizer/golden.h"

namespace attend {
namespace {

using nlohmann::json;

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

// Expands a line of many_texts.jsonl to its text.
std::string text_of(const std::string& line) {
  const json value = json::parse(line);
  if (value.is_string()) return value.get<std::string>();
  if (value.contains("hex")) return from_hex(value["hex"].get<std::string>());
  std::string text;
  for (const json& run : value.at("runs"))
    for (int i = 0; i < run.at(1).get<int>(); ++i) text += run.at(0).get<std::string>();
  return text;
}

// CRC-32 (ISO-HDLC, as in zlib) as 8 hex digits.
std::string crc32(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  std::array<char, 9> digits;
  std::snprintf(digits.data(), digits.size(), "%08x", ~crc);
  return digits.data();
}

std::string little_endian(const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      bytes += static_cast<char>(static_cast<uint32_t>(id) >> shift & 0xff);
  return bytes;
}

class TokenizerDigest : public ::testing::TestWithParam<std::string> {};

TEST_P(TokenizerDigest, MatchesTheLibraryOnTwoThousandTexts) {
  const std::string folder = testing::golden_folder(GetParam());
  const Tokenizer tokenizer = Tokenizer::from_path(folder);
  const std::vector<std::string> texts = read_lines(folder + "/../many_texts.jsonl");
  const std::vector<std::string> digests = read_lines(folder + "/many.txt");
  ASSERT_EQ(texts.size(), 2000u);
  ASSERT_EQ(digests.size(), texts.size());
  // Texts that the library's older Unicode tables encode differently.
  EXPECT_LE(std::ranges::count(digests, "-"), 10);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (digests[i] == "-") continue;
    SCOPED_TRACE("scripts/make_tokenizer_digests.py --show " + GetParam() + " " + std::to_string(i + 1));
    const std::string text = text_of(texts[i]);
    const std::vector<int32_t> ids = tokenizer.encode(text, false);
    EXPECT_EQ(crc32(little_endian(ids)), digests[i].substr(0, 8)) << ::testing::PrintToString(ids);
    // A digest without a second part expects the encoded text itself.
    const std::string decoded = tokenizer.decode(ids);
    EXPECT_EQ(crc32(decoded), digests[i].size() > 8 ? digests[i].substr(9) : crc32(text)) << decoded;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TokenizerDigest, ::testing::ValuesIn(testing::golden_layouts()),
                         [](const auto& layout) { return layout.param; });

}  // namespace
}  // namespace attend
