// Command-line tests of `attend embed`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"

namespace attend {
namespace {

using testing::HasSubstr;
using namespace testing_support;

const std::string kEmbedding = ATTEND_SOURCE_DIR "/tests/goldens/embed-qwen3-last";

TEST(EmbedCommand, PrintsOneLineOfJsonPerText) {
  const CommandResult ran =
      attend("embed -m " + kTinyModel + " -p 'sun fox' -p 'a longer text'", Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  const auto lines = split_lines(ran.out);
  ASSERT_EQ(lines.size(), 2u);
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto json = nlohmann::json::parse(lines[i]);
    EXPECT_EQ(json.at("index"), i);
    EXPECT_GT(json.at("num_tokens"), 0);
    double squares = 0.0;
    for (const double x : json.at("embedding")) squares += x * x;
    EXPECT_NEAR(squares, 1.0, 1e-4);
  }
}

TEST(EmbedCommand, WritesTheSameValuesAsANumpyArray) {
  const std::string texts = write_file("texts.jsonl", "{\"input_ids\": [3, 4, 5]}\n{\"input_ids\": [9]}\n");
  const std::string array = (std::filesystem::path(testing::TempDir()) / "vectors.npy").string();
  const std::string command = "embed -m " + kEmbedding + " --texts-file " + texts + " --no-normalize";
  EXPECT_EQ(attend(command + " --format npy -o " + array).exit_code, 0);
  std::ifstream file(array, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const auto lines = split_lines(attend(command, Streams::kStdout).out);
  ASSERT_EQ(lines.size(), 2u);
  const auto first = nlohmann::json::parse(lines[0]).at("embedding").get<std::vector<float>>();
  const size_t header = bytes.size() - 2 * first.size() * sizeof(float);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(header % 64, 0u);
  EXPECT_THAT(bytes.substr(0, header), HasSubstr("'<f4', 'fortran_order': False, 'shape': (2, 32)"));
  EXPECT_EQ(bytes[header - 1], '\n');
  std::vector<float> stored(first.size());
  std::memcpy(stored.data(), bytes.data() + header, stored.size() * sizeof(float));
  EXPECT_EQ(stored, first);
}

TEST(EmbedCommand, TruncatesAndNormalizesVectors) {
  const std::string texts = write_file("short.jsonl", "{\"input_ids\": [3, 4, 5]}\n");
  const auto vector_of = [&](const std::string& flags) {
    const CommandResult ran =
        attend("embed -m " + kEmbedding + " --texts-file " + texts + flags, Streams::kStdout);
    return nlohmann::json::parse(ran.out).at("embedding").get<std::vector<double>>();
  };
  const std::vector<double> full = vector_of(""), first = vector_of(" --dimensions 3");
  ASSERT_EQ(first.size(), 3u);
  const double length = std::hypot(full[0], full[1], full[2]);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(first[i], full[i] / length, 1e-6);
}

TEST(EmbedCommand, TruncatesLongTextsWithAWarning) {
  const CommandResult ran =
      attend("embed -m " + kTinyModel + " --max-input-tokens 4 -p 'sun fox river cloud stone' -p sun");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("warning: 1 of 2 texts: truncated to 4 tokens"));
  EXPECT_THAT(ran.out, HasSubstr("\"num_tokens\":4"));
}

TEST(EmbedCommand, ReportsUnsupportedInput) {
  const auto error_text = [](const std::string& arguments) {
    const CommandResult ran = attend("embed -m " + kEmbedding + " " + arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments;
    return ran.out;
  };
  EXPECT_THAT(error_text(""), HasSubstr("expected --text or --texts-file"));
  EXPECT_THAT(error_text("--text x"), HasSubstr("no tokenizer.json"));
  EXPECT_THAT(error_text("--text x --pooling max"), HasSubstr("expected mean, cls or last"));
  EXPECT_THAT(error_text("--text x --normalize --no-normalize"), HasSubstr("expected one of them"));
  EXPECT_THAT(error_text("--text x --format csv"), HasSubstr("expected json or npy"));
  EXPECT_THAT(error_text("--text x --max-input-tokens 9999"), HasSubstr("1 to 256"));
  EXPECT_THAT(error_text("--text x --dimensions 33"), HasSubstr("--dimensions 33: 1 to 32"));
  const std::string texts = write_file("one.jsonl", "{\"input_ids\": [3]}\n");
  EXPECT_THAT(error_text("--texts-file " + texts + " -o /nowhere/x"), HasSubstr("cannot be written"));
  EXPECT_THAT(attend("generate -m " + std::string(ATTEND_SOURCE_DIR "/tests/goldens/embed-gemma-mean-dense") +
                     " -p x")
                  .out,
              HasSubstr("attend embed"));
}

}  // namespace
}  // namespace attend
