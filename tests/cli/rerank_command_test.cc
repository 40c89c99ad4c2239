// Command-line tests of `attend rerank`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"

namespace attend {
namespace {

using testing::HasSubstr;
using namespace testing_support;

const std::string kBert = ATTEND_SOURCE_DIR "/tests/goldens/score-bert";

TEST(RerankCommand, PrintsDocumentsByDescendingScore) {
  std::ifstream file(kBert + "/golden.json");
  const auto pairs = nlohmann::json::parse(file)["pairs"];  // the first two have the same query
  std::string texts;
  for (int i = 0; i < 2; ++i) texts += pairs[i]["second"].get<std::string>() + "\n";
  const std::string query = pairs[0]["first"], documents = write_file("documents.txt", texts);
  const std::string command = "rerank -m " + kBert + " --query '" + query + "' --documents-file " + documents;
  const CommandResult ran = attend(command, Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  const auto lines = split_lines(ran.out);
  ASSERT_EQ(lines.size(), 2u);
  double last = INFINITY;
  for (const std::string& line : lines) {
    const auto json = nlohmann::json::parse(line);
    const auto& pair = pairs[json.at("index").get<size_t>()];
    EXPECT_NEAR(json.at("relevance_score"), pair["scores"][0], 1e-4);
    EXPECT_EQ(json.at("document"), pair["second"]);
    EXPECT_LE(json.at("relevance_score"), last);
    last = json.at("relevance_score");
  }
  EXPECT_EQ(split_lines(attend(command + " --top-n 1", Streams::kStdout).out),
            std::vector<std::string>{lines[0]});
}

TEST(RerankCommand, NamesTheInvalidArgument) {
  const auto error = [](const std::string& arguments) {
    const CommandResult ran = attend("rerank " + arguments);
    EXPECT_EQ(ran.exit_code, 2);
    return ran.out;
  };
  EXPECT_THAT(error("-m " + kBert + " -q a"), HasSubstr("expected --document or --documents-file"));
  EXPECT_THAT(error("-m " + kBert + " -q a -p b --instruction c"),
              HasSubstr("BertForSequenceClassification"));
  EXPECT_THAT(error("-m " ATTEND_SOURCE_DIR "/tests/goldens/score-roberta-labels -q a -p b"),
              HasSubstr("3 labels"));
}

TEST(EmbedCommand, RejectsAModelThatReturnsScores) {
  const CommandResult ran = attend("embed -m " + kBert + " -p a");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("BertForSequenceClassification returns scores"));
}

}  // namespace
}  // namespace attend
