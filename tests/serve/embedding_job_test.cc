// Requests and replies of /v1/embeddings.
#include "attend/serve/protocols/pooling/embedding_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attend::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Tokens = std::vector<int32_t>;

EmbeddingJob read(const std::string& body) { return read_embedding(parse_body(body), 384); }

ApiError error_text(const std::string& body) {
  try {
    read(body);
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << "accepted: " << body;
  return {};
}

TEST(EmbeddingJob, ReadsEveryFormOfInput) {
  EXPECT_THAT(read(R"({"input": "a cat"})").inputs, ElementsAre(PromptInput("a cat")));
  EXPECT_THAT(read(R"({"input": ["a", ""]})").inputs, ElementsAre(PromptInput("a"), PromptInput("")));
  EXPECT_THAT(read(R"({"input": [3, 4]})").inputs, ElementsAre(PromptInput(Tokens{3, 4})));
  EXPECT_THAT(read(R"({"input": [[3], [4, 5]]})").inputs,
              ElementsAre(PromptInput(Tokens{3}), PromptInput(Tokens{4, 5})));
}

TEST(EmbeddingJob, ReadsEncodingFormatAndDimensions) {
  const EmbeddingJob plain = read(R"({"input": "a", "user": "u", "odd": 1})");
  EXPECT_FALSE(plain.base64);
  EXPECT_EQ(plain.dimensions, std::nullopt);
  EXPECT_THAT(plain.ignored, ElementsAre("odd"));
  const EmbeddingJob job =
      read(R"({"input": "a", "model": "m", "encoding_format": "base64", "dimensions": 384})");
  EXPECT_TRUE(job.base64);
  EXPECT_EQ(job.dimensions, 384);
  EXPECT_EQ(job.model, "m");
}

TEST(EmbeddingJob, NamesTheInvalidField) {
  EXPECT_EQ(error_text("{}").param, "input");
  EXPECT_EQ(error_text(R"({"input": []})").param, "input");
  EXPECT_EQ(error_text(R"({"input": {"a": 1}})").param, "input");
  EXPECT_EQ(error_text(R"({"input": ["a", 1.5]})").param, "input");
  EXPECT_EQ(error_text(R"({"input": [-1]})").param, "input");
  EXPECT_EQ(error_text(R"({"input": "a", "encoding_format": "int8"})").param, "encoding_format");
  for (const char* dimensions : {"0", "385", "1.5", "\"8\""})
    EXPECT_EQ(error_text(std::string(R"({"input": "a", "dimensions": )") + dimensions + "}").param,
              "dimensions");
  EXPECT_EQ(error_text(R"({"input": "a", "truncate_prompt_tokens": 0})").param, "truncate_prompt_tokens");
  Json many = {{"input", Json::array()}};
  for (int i = 0; i < 2049; ++i) many["input"].push_back("a");
  EXPECT_THAT(error_text(many.dump()).message, HasSubstr("1 to 2048"));
}

TEST(EmbeddingReply, ContainsOneVectorPerInput) {
  const Json reply = Json::parse(embedding_reply({{0.1f, -2.0f}, {1e-9f}}, false, 7, "a \"name\""));
  EXPECT_EQ(reply["object"], "list");
  EXPECT_EQ(reply["model"], "a \"name\"");
  EXPECT_EQ(reply["usage"], Json({{"prompt_tokens", 7}, {"total_tokens", 7}}));
  ASSERT_EQ(reply["data"].size(), 2u);
  EXPECT_EQ(reply["data"][1]["index"], 1);
  EXPECT_EQ(reply["data"][0]["object"], "embedding");
  EXPECT_EQ(reply["data"][0]["embedding"].get<std::vector<float>>(), (std::vector<float>{0.1f, -2.0f}));
  EXPECT_EQ(reply["data"][1]["embedding"][0].get<float>(), 1e-9f);
}

TEST(EmbeddingReply, EncodesLittleEndianFloatsAsBase64) {
  const auto encoded = [](const std::vector<float>& vector) {
    return Json::parse(embedding_reply({vector}, true, 1, "m"))["data"][0]["embedding"].get<std::string>();
  };
  // Inputs of 4, 8 and 12 bytes cover every padding of base64.
  EXPECT_EQ(encoded({1.0f}), "AACAPw==");
  EXPECT_EQ(encoded({1.0f, -2.0f}), "AACAPwAAAMA=");
  EXPECT_EQ(encoded({1.0f, -2.0f, 0.5f}), "AACAPwAAAMAAAAA/");
}

}  // namespace
}  // namespace attend::serve
