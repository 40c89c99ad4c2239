// Errors of invalid tokenizer.json files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "attend/base/error.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "tests/text/tokenizer/golden.h"
#include "tests/text/tokenizer/temp_folder.h"

namespace attend {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::TempFolder;

// The smallest valid tokenizer.
json small() {
  return json::parse(R"({
    "version": "1.0",
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abb": 3}, "merges": ["a b", ["ab", "b"]]}
  })");
}

void expect_rejected(const std::string& text, ErrorCode code, const std::string& message) {
  const TempFolder folder;
  const std::string path = folder.write("tokenizer.json", text).string();
  try {
    Tokenizer::from_path(folder.path());
    ADD_FAILURE() << "accepted: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(path));
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

// Sets the value at a JSON pointer, or removes it if `value` is null.
json with(const std::string& pointer, const json& value) {
  json changed = small();
  changed[json::json_pointer(pointer)] = value;
  return changed;
}

void expect_rejected(const std::string& pointer, const json& value, ErrorCode code,
                     const std::string& message) {
  expect_rejected(with(pointer, value).dump(), code, message);
}

constexpr ErrorCode kCorrupt = ErrorCode::kCorruptFile;
constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;

TEST(TokenizerErrors, AcceptTheUnmodifiedTokenizer) {
  const TempFolder folder;
  folder.write("tokenizer.json", small().dump());
  const Tokenizer tokenizer = Tokenizer::from_path(folder.path());
  EXPECT_EQ(tokenizer.encode("abb<s>ba"), (std::vector<int32_t>{3, 4, 1, 0}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("abb<s>ba")), "abbba");
}

TEST(TokenizerErrors, NameAFileThatDoesNotExist) {
  const TempFolder folder;
  try {
    Tokenizer::from_path(folder.path());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr((folder.path() / "tokenizer.json").string()));
  }
}

TEST(TokenizerErrors, NameADirectoryThatShouldBeAFile) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    const TempFolder folder;
    folder.write("tokenizer.json", small().dump());
    std::filesystem::remove(folder.path() / name);
    std::filesystem::create_directory(folder.path() / name);
    try {
      Tokenizer::from_path(folder.path());
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound);
      EXPECT_THAT(error.what(),
                  HasSubstr((folder.path() / name).string() + ": is a directory: expected a regular file"));
    }
  }
}

TEST(TokenizerErrors, RejectAKeyThatOccursTwice) {
  expect_rejected(R"({"version": "1.0", "model": {"vocab": {"a": 0, "a": 1}}})", kCorrupt,
                  "\"a\" occurs twice");
}

TEST(TokenizerErrors, ShortenExcerptsOfTheFile) {
  const std::string garbage(100'000, 'x');
  const TempFolder folder;
  for (const std::string& text :
       {garbage, "{\"version\": \"" + garbage, "{\"version\": [\"" + garbage + "\"]}",
        "{\"version\": \"" + garbage + "\"}", "{\"" + garbage + "\": 1, \"" + garbage + "\": 2}"}) {
    folder.write("tokenizer.json", text);
    try {
      Tokenizer::from_path(folder.path());
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_LT(std::string(error.what()).size(), 400u);
    }
  }
}

TEST(TokenizerErrors, RejectInvalidJson) {
  expect_rejected("", kCorrupt, "expected JSON, line 1, column 1: unexpected end of input");
  expect_rejected("{\n\"model\": ", kCorrupt, "expected JSON, line 2, column 10: unexpected end of input");
  expect_rejected("{\"version\": \"\xFF\"}", kCorrupt, "expected JSON, line 1, column 14: invalid string");
  expect_rejected("[]", kCorrupt, "tokenizer.json []: expected a JSON object");
  expect_rejected("{}", kCorrupt, "field \"model\" is missing");
}

TEST(TokenizerErrors, RejectOtherModelsByName) {
  expect_rejected("/model/type", "WordLevel", kUnsupported,
                  "model.type: model \"WordLevel\"; attend reads \"BPE\", \"WordPiece\" and \"Unigram\"");
  expect_rejected("/model/type", "WordPiece", kCorrupt, "model: field \"unk_token\" is missing");
  expect_rejected("/model", json::parse(R"({"vocab": {"a": 0}})"), kUnsupported,
                  "attend reads models of type \"BPE\", \"WordPiece\" and \"Unigram\"");
  expect_rejected("/version", "2.0", kUnsupported, "version: \"2.0\"; attend reads \"1.0\"");
}

TEST(TokenizerErrors, RejectOtherPartsByName) {
  expect_rejected("/normalizer", {{"type", "Precompiled"}}, kCorrupt,
                  "field \"precompiled_charsmap\" is missing");
  expect_rejected("/normalizer", {{"type", "Nmt"}}, kUnsupported, "\"Nmt\"; attend reads NFC");
  expect_rejected("/pre_tokenizer", {{"type", "UnicodeScripts"}}, kUnsupported,
                  "pre-tokenizer \"UnicodeScripts\"");
  expect_rejected("/post_processor", {{"type", "Other"}}, kUnsupported, "post-processor \"Other\"");
  expect_rejected("/decoder", {{"type", "CTC"}}, kUnsupported, "decoder \"CTC\"; attend reads ByteLevel");
  expect_rejected("/decoder",
                  json::parse(R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "X"}]})"),
                  kUnsupported, "decoder.decoders[1].type: decoder \"X\"");
}

TEST(TokenizerErrors, RejectOptionsThatWouldChangeTheResult) {
  expect_rejected("/model/dropout", 0.1, kUnsupported, "model.dropout");
  expect_rejected("/model/continuing_subword_prefix", "##", kUnsupported,
                  "model.continuing_subword_prefix: \"##\"");
  expect_rejected("/model/end_of_word_suffix", "</w>", kUnsupported, "model.end_of_word_suffix");
}

TEST(TokenizerErrors, RejectInvalidIds) {
  expect_rejected("/model/vocab/a", -1, kCorrupt, "model.vocab.a -1: expected a token id, 0 to 2147483646");
  expect_rejected("/model/vocab/a", 0.5, kCorrupt, "expected a token id");
  expect_rejected("/model/vocab/a", "0", kCorrupt, "expected a token id");
  expect_rejected("/model/vocab/a", 4294967296, kCorrupt, "far beyond the 4 tokens");
  expect_rejected("/added_tokens/0/id", 4294967296, kCorrupt, "expected a token id");
  expect_rejected("/model/vocab/a", 2147483646, kCorrupt, "far beyond the 4 tokens");
  expect_rejected("/added_tokens/0/id", -4, kCorrupt, "added_tokens[0].id");
}

TEST(TokenizerErrors, RejectIdsThatAreNotDense) {
  expect_rejected("/model/vocab/abb", 7, kCorrupt, "no token has id 3");
  expect_rejected("/model/vocab/b", 0, kCorrupt, "id 0 belongs to \"a\" and to \"b\"");
  expect_rejected("/added_tokens/0/id", 5, kCorrupt, "has id 5, but it is 4 by its position");
  expect_rejected("/added_tokens/0/content", "ab", kCorrupt, "token \"ab\" has id 4, but it is 2");
}

TEST(TokenizerErrors, RejectMergesOfUnknownTokens) {
  expect_rejected("/model/merges/0", "a c", kCorrupt,
                  "model.merges[0]: token \"c\" is not in the vocabulary");
  expect_rejected("/model/merges/1", json::array({"b", "b"}), kCorrupt, "merges[1]: token \"bb\" is not in");
  expect_rejected("/model/merges/0", "ab", kCorrupt, "is not two tokens with one space between them");
  expect_rejected("/model/merges/0", "a b c", kCorrupt, "is not two tokens");
  expect_rejected("/model/merges/0", " ab", kCorrupt, "merges the empty token");
  expect_rejected("/model/merges/0", 3, kCorrupt, "is neither \"a b\" nor [\"a\", \"b\"]");
}

TEST(TokenizerErrors, RejectValuesOfTheWrongShape) {
  expect_rejected("/model/vocab", json::array(), kCorrupt, "model.vocab []: expected a JSON object");
  expect_rejected("/model/vocab", json::object(), kCorrupt, "model.vocab: is empty");
  expect_rejected("/model/merges", "a b", kCorrupt, "model.merges \"a b\": expected a JSON array");
  expect_rejected("/model/fuse_unk", "yes", kCorrupt, "model.fuse_unk \"yes\": expected true or false");
  expect_rejected("/normalizer", "NFC", kCorrupt, "normalizer \"NFC\": expected a JSON object");
  expect_rejected("/normalizer", json::object(), kCorrupt, "normalizer: field \"type\" is missing");
  expect_rejected("/added_tokens", 3, kCorrupt, "added_tokens 3: expected a JSON array");
  expect_rejected("/decoder", json::parse(R"({"type": "Strip", "content": "ab", "start": 1, "stop": 0})"),
                  kCorrupt, "decoder.content \"ab\": expected one character");
  expect_rejected(
      "/pre_tokenizer",
      json::parse(R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Kept", "invert": false})"),
      kCorrupt, "pre_tokenizer.behavior: behavior \"Kept\" is none of Removed");
  expect_rejected(
      "/pre_tokenizer",
      json::parse(
          R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false, "prepend_scheme": "first"})"),
      kCorrupt, "add_prefix_space false contradicts");
}

TEST(TokenizerErrors, RejectPatternsThatCanNotBeCompiled) {
  const auto split = [](const std::string& regex) {
    return json{
        {"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
  };
  expect_rejected("/pre_tokenizer", split("(a"), kUnsupported,
                  "pre_tokenizer.pattern.Regex: regex \"(a\" at byte 2");
  expect_rejected("/pre_tokenizer", split("(a)\\1"), kUnsupported, "back-references");
  expect_rejected("/pre_tokenizer", split("\\p{Nothing}"), kUnsupported,
                  "pre_tokenizer.pattern.Regex: regex");
}

TEST(TokenizerErrors, RejectTemplatesThatDoNotFit) {
  const auto processor = [](const json& single) {
    return json{
        {"type", "TemplateProcessing"},
        {"single", single},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {4}}}}, {"<x>", {{"id", "<x>"}, {"ids", {5}}}}}}};
  };
  const json text = {{"Sequence", {{"id", "A"}}}};
  const auto token = [](const char* id) { return json{{"SpecialToken", {{"id", id}}}}; };
  expect_rejected("/post_processor", processor(json::array({token("<s>")})), kCorrupt,
                  "has no place for the text");
  expect_rejected("/post_processor", processor(json::array({token("<y>"), text})), kCorrupt,
                  "\"<y>\" is not in special_tokens");
  expect_rejected("/post_processor", processor(json::array({token("<x>"), text})), kCorrupt,
                  "adds token 5, which does not exist");
  expect_rejected("/post_processor", processor(json::array({{{"Sequence", {{"id", "B"}}}}, text})), kCorrupt,
                  "only \"A\" is there");
}

TEST(TokenizerErrors, RejectAVocabularyWithoutScores) {
  const auto model = [](const json& vocab, const json& unk_id) {
    return json{{"type", "Unigram"}, {"vocab", vocab}, {"unk_id", unk_id}};
  };
  const json vocab = json::parse(R"([["<unk>", 0.0], ["a", -1.5], ["b", -2], ["ab", -3]])");
  expect_rejected("/model", model(json::parse(R"([["a"]])"), 0), kCorrupt, "a token and its score");
  expect_rejected("/model", model(json::object({{"a", 0}}), 0), kCorrupt, "expected a JSON array");
  expect_rejected("/model", model(json::array(), 0), kCorrupt, "is empty");
  expect_rejected("/model", model(vocab, 4), kCorrupt, "unk_id 4");
  const TempFolder folder;
  folder.write("tokenizer.json", with("/model", model(vocab, nullptr)).dump());
  const Tokenizer tokenizer = Tokenizer::from_path(folder.path());
  EXPECT_EQ(tokenizer.encode("abba"), (std::vector<int32_t>{3, 2, 1}));
  EXPECT_THROW(tokenizer.encode("abc"), Error);
}

TEST(TokenizerErrors, RejectDamagedTablesOfNormalizations) {
  const auto table = [](const char* base64) {
    return json{{"type", "Precompiled"}, {"precompiled_charsmap", base64}};
  };
  expect_rejected("/normalizer", table("!!!!"), kCorrupt, "is not base64");
  expect_rejected("/normalizer", table("AAAA"), kCorrupt, "is not base64");
  expect_rejected("/normalizer", table("AAAAAA=="), kCorrupt, "has a trie of 0 bytes");
  expect_rejected("/normalizer", table("CAAAAAAAAAA="), kCorrupt, "has a trie of 8 bytes");
  expect_rejected("/normalizer", table("BAAAAAAAAAD//w=="), kCorrupt, "not UTF-8");
}

TEST(TokenizerErrors, RejectPairsWithoutATemplate) {
  const auto pair_of = [](const json& pair) {
    const TempFolder folder;
    folder.write("tokenizer.json",
                 with("/post_processor", {{"type", "TemplateProcessing"},
                                          {"single", json::array({{{"Sequence", {{"id", "A"}}}}})},
                                          {"pair", pair},
                                          {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {4}}}}}}})
                     .dump());
    return Tokenizer::from_path(folder.path()).encode_pair("a", "b");
  };
  const auto text = [](const char* id, int type) {
    return json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  const json token = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 3}}}};
  const Tokenizer::EncodedPair pair = pair_of(json::array({text("B", 2), token, text("A", 1)}));
  EXPECT_EQ(pair.ids, (std::vector<int32_t>{1, 4, 0}));
  EXPECT_EQ(pair.types, (std::vector<int32_t>{2, 3, 1}));
  for (const json& unusable :
       {json(), json::array({text("A", 0)}), json::array({text("A", 0), text("A", 0), text("B", 0)})}) {
    try {
      pair_of(unusable);
      ADD_FAILURE() << "accepted: " << unusable;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr("template for pairs"));
    }
  }
}

TEST(TokenizerErrors, RejectDeeplyNestedSequences) {
  for (const auto& [field, list] : {std::pair("/normalizer", "normalizers"),
                                    {"/pre_tokenizer", "pretokenizers"},
                                    {"/post_processor", "processors"},
                                    {"/decoder", "decoders"}}) {
    json nested = {{"type", "Sequence"}, {list, json::array()}};
    for (int i = 0; i < 20; ++i) nested = {{"type", "Sequence"}, {list, {nested}}};
    expect_rejected(field, nested, kUnsupported, "nested more than");
    // The path repeats one element 16 times, so the error elides its middle.
    expect_rejected(field, nested, kUnsupported, std::string(field).substr(1) + "." + list + "[0].");
    expect_rejected(field, nested, kUnsupported, "...");
    for (int i = 0; i < 1000; ++i) nested = {{"type", "Sequence"}, {list, {nested}}};
    expect_rejected(field, nested, kCorrupt, "nested at most 64 levels deep");
  }
}

TEST(TokenizerErrors, RejectATokenThatIsNormalizedToNothing) {
  json changed = with("/normalizer", {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
  changed["added_tokens"][0] = {{"id", 4}, {"content", "  "}, {"normalized", true}};
  expect_rejected(changed.dump(), kUnsupported, "added token \"  \" is normalized to nothing");
}

TEST(TokenizerErrors, ReportAMissingUnkTokenWhenATextNeedsIt) {
  const TempFolder folder;
  folder.write("tokenizer.json", with("/model/unk_token", "<unk>").dump());
  const Tokenizer tokenizer = Tokenizer::from_path(folder.path());
  EXPECT_EQ(tokenizer.encode("ab"), std::vector<int32_t>{2});
  EXPECT_THROW(tokenizer.encode("abc"), Error);
}

}  // namespace
}  // namespace attend
