// Prompts files: lines of text, lines of JSON objects, or one prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"
#include "tests/support/overflowing_model.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace testing_support;

TEST(GenerateCommand, PrintsAJsonObjectPerPromptInOrder) {
  const std::string file =
      write_file("prompts.jsonl",
                 "{\"input_ids\": [5, 6, 7]}\n\n{\"input_ids\": [9]}\n{\"input_ids\": [20, 21, 22, 23]}\n");
  const CommandResult ran = attend("generate --model-path " + kGolden + " --prompts-file " + file +
                                       " --max-new-tokens 5 --ignore-eos --json",
                                   Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  const auto lines = split_lines(ran.out);
  ASSERT_EQ(lines.size(), 3u);
  const size_t lengths[] = {3, 1, 4};
  for (size_t i = 0; i < 3; ++i) {
    const auto json = nlohmann::json::parse(lines[i]);
    EXPECT_EQ(json.at("input_ids").size(), lengths[i]);
    EXPECT_EQ(json.at("output_ids").size(), 5u);
    EXPECT_EQ(json.at("finish_reason"), "length");
    for (const char* key : {"prompt", "text"}) EXPECT_TRUE(json.at(key).is_string());
    EXPECT_GT(json.at("timings").at("total_ms"), 0.0);
  }
}

TEST(GenerateCommand, ReadsPlainTextPromptsLineByLine) {
  const std::string file = write_file(
      "prompts.txt", "copy: laugh [ scout coffee ] roll ->\nreverse: laugh [ scout coffee ] roll ->\n");
  const CommandResult ran =
      attend("generate --model-path " + kTinyModel + " --prompts-file " + file + " --json", Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  const auto lines = split_lines(ran.out);
  ASSERT_EQ(lines.size(), 2u);
  const auto reversed = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(reversed.at("prompt"), "reverse: laugh [ scout coffee ] roll ->");
  EXPECT_EQ(reversed.at("text"), " coffee scout");
  EXPECT_EQ(reversed.at("finish_reason"), "stop");
}

TEST(GenerateCommand, CountsCorrectAnswers) {
  const std::string file =
      write_file("answers.jsonl",
                 "{\"prompt\": \"copy: laugh [ scout coffee ] roll ->\", \"answer\": \" scout coffee\"}\n"
                 "{\"prompt\": \"copy: laugh [ scout coffee ] roll ->\", \"answer\": \" something else\"}\n");
  const std::string generate = "generate --model-path " + kTinyModel + " --prompts-file " + file;
  EXPECT_EQ(split_lines(attend(generate).out).back(), "info: answers: 1 of 2 right");
  EXPECT_EQ(attend(generate, Streams::kStdout).out, " scout coffee\n scout coffee\n");
  EXPECT_EQ(split_lines(attend(generate + " --show-prompts", Streams::kStdout).out),
            (std::vector<std::string>{
                "[1] copy: laugh [ scout coffee ] roll ->", "    =>  scout coffee   (right)",
                "[2] copy: laugh [ scout coffee ] roll ->",
                "    =>  scout coffee   (wrong: expected  something else)", "answers: 1 of 2 right"}));
}

TEST(GenerateCommand, NamesTheInvalidLineOfAPromptsFile) {
  const std::string file = write_file("broken.jsonl", "{\"prompt\": \"x\"}\n{\"prompt\": 3}\n");
  const CommandResult ran = attend("generate --model-path " + kTinyModel + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("broken.jsonl:2: \"prompt\" is number, expected a string"));
}

TEST(GenerateCommand, RejectsPromptsFilesThatAreNotUtf8) {
  const auto error_text = [](const std::string& name, const std::string& content) {
    const CommandResult ran =
        attend("generate --model-path " + kTinyModel + " --prompts-file " + write_file(name, content));
    EXPECT_EQ(ran.exit_code, 2) << name;
    return ran.out;
  };
  EXPECT_THAT(error_text("utf16.txt", std::string("\xff\xfe"
                                                  "a\0b\0\n\0",
                                                  8)),
              HasSubstr("utf16.txt:1: byte 4 is NUL: expected UTF-8 text (is it UTF-16?)"));
  EXPECT_THAT(error_text("latin1.txt", "fine\ncaf\xe9\n"), HasSubstr("latin1.txt:2: expected UTF-8 text"));
  EXPECT_THAT(error_text("binary.jsonl", "{\"prompt\": \"\xc3\"}\n"),
              HasSubstr("binary.jsonl:1: expected UTF-8"));
  EXPECT_THAT(error_text("both.jsonl", "{\"prompt\": \"x\", \"input_ids\": [5]}\n"),
              HasSubstr("both.jsonl:1: has \"prompt\" and \"input_ids\": expected one of them"));
  EXPECT_THAT(error_text("twice.jsonl", "{\"prompt\": \"x\", \"prompt\": \"y\"}\n"),
              HasSubstr("twice.jsonl:1: \"prompt\" occurs twice"));
  EXPECT_THAT(error_text("cut.jsonl", "{\"prompt\": \"x\"}\n{\"prompt\": \n"),
              HasSubstr("cut.jsonl:2: expected JSON, line 1, column 12: unexpected end of input"));
  EXPECT_THAT(error_text("empty.txt", "\n \n"), HasSubstr("empty.txt: no prompts"));
}

TEST(GenerateCommand, RejectsAJsonArrayOfPrompts) {
  for (const std::string array : {R"([{"prompt": "a"}, {"prompt": "b"}])", R"(["a", "b"])",
                                  "[\n  \"a\",\n  \"b\"\n]\n", "text\n[\"a\"]\n"}) {
    const CommandResult ran =
        attend("generate --model-path " + kTinyModel + " --prompts-file " + write_file("array.json", array));
    EXPECT_EQ(ran.exit_code, 2) << array;
    EXPECT_THAT(ran.out, HasSubstr(": a JSON array: expected lines of text, or lines of JSON objects"))
        << array;
  }
  const std::string brackets = write_file("brackets.txt", "\n\r\r\n[INST] one [/INST]\n[INST] two [/INST]\n");
  const std::string generate = "generate -n 1 --json --model-path " + kTinyModel + " --prompts-file ";
  EXPECT_EQ(split_lines(attend(generate + brackets, Streams::kStdout).out).size(), 3u);  // "\r" is a prompt
}

TEST(GenerateCommand, RejectsAPromptBeforePrintingTheConfiguration) {
  const std::string file = write_file("ids.jsonl", "{\"input_ids\": [5]}\n{\"input_ids\": [128]}\n");
  const CommandResult ran = attend("generate --model-path " + kGolden + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, StartsWith("attend: prompt 2: token id 128: 0 to 127"));
}

TEST(GenerateCommand, FinishesOtherPromptsAfterNonFiniteLogits) {
  const auto model = std::filesystem::path(testing::TempDir()) / "attend_overflowing";
  testing_support::make_overflowing_model(kGolden, model, 77);
  const std::string file =
      write_file("one_fails.jsonl", "{\"input_ids\": [5]}\n{\"input_ids\": [77]}\n{\"input_ids\": [6]}\n");
  const std::string generate =
      "generate -n 3 --ignore-eos --json --model-path " + model.string() + " --prompts-file " + file;
  const CommandResult ran = attend(generate, Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 2);
  const auto lines = split_lines(ran.out);
  ASSERT_EQ(lines.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const auto json = nlohmann::json::parse(lines[i]);
    EXPECT_EQ(json.at("finish_reason"), i == 1 ? "error" : "length");
    EXPECT_EQ(json.at("output_ids").size(), i == 1 ? 0u : 3u);
    EXPECT_GE(json.at("timings").at("time_to_first_token_ms"), 0.0);
  }
  EXPECT_THAT(attend(generate).out, HasSubstr("attend: prompt 2: the model's logits are NaN"));
}

TEST(GenerateCommand, RejectsJsonAmongLinesOfText) {
  const std::string file = write_file("mixed.txt", "a line of text\n{\"prompt\": \"b\"}\n");
  const CommandResult ran = attend("generate -n 1 --model-path " + kTinyModel + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr(":2: a line of JSON"));
  const std::string code = write_file("code.txt", "int main()\n{ return 0; }\n");
  EXPECT_EQ(attend("generate -n 1 --model-path " + kTinyModel + " --prompts-file " + code).exit_code, 0);
}

TEST(GenerateCommand, NamesIgnoredKeysOfPrompts) {
  const std::string file = write_file("keys.jsonl", "{\"prompt\": \"a\", \"color\": 1}\n");
  const CommandResult ran = attend("generate -n 1 --model-path " + kTinyModel + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("\"color\" is ignored"));
}

TEST(GenerateCommand, NamesSomeOfManyIgnoredKeys) {
  nlohmann::json prompt = {{"prompt", "a"}};
  for (int i = 0; i < 500; ++i) prompt["key " + std::to_string(i)] = i;
  const std::string file = write_file("many_keys.jsonl", prompt.dump() + "\n");
  const CommandResult ran = attend("generate -n 1 --model-path " + kTinyModel + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("ignoring 492 other keys"));
  EXPECT_LT(split_lines(ran.out).size(), 25u);
}

TEST(GenerateCommand, ServesPromptsByPriority) {
  const std::string file = write_file(
      "priority.jsonl",
      "{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"priority\": 2}\n{\"prompt\": \"c\", \"priority\": 1}\n");
  const CommandResult ran = attend(
      "generate --device cpu -n 8 --ignore-eos --json --max-running-requests 1 --schedule-policy priority "
      "--model-path " +
          kTinyModel + " --prompts-file " + file,
      Streams::kStdout);
  std::vector<double> queued;
  for (const std::string& line : split_lines(ran.out))
    queued.push_back(nlohmann::json::parse(line).at("timings").at("queue_ms"));
  ASSERT_EQ(queued.size(), 3u);
  EXPECT_LT(queued[1], queued[2]);
  EXPECT_LT(queued[2], queued[0]);
  for (const std::string field :
       {"\"priority\": 0.5", "\"priority\": 1e300", "\"timeout\": 0", "\"timeout\": \"a\""}) {
    const std::string wrong = write_file("wrong.jsonl", "{\"prompt\": \"a\", " + field + "}\n");
    const CommandResult rejected = attend("generate --model-path " + kTinyModel + " --prompts-file " + wrong);
    EXPECT_EQ(rejected.exit_code, 2);
    EXPECT_THAT(rejected.out, HasSubstr("wrong.jsonl:1: " + field.substr(0, field.find(':')) + " is "))
        << field;
  }
}

TEST(GenerateCommand, ReadsPromptsFromStandardInput) {
  const std::string file = write_file("stdin.txt", "recall: sun=42, river=17, fox=80; river=\n");
  const CommandResult ran =
      attend("generate --model-path " + kTinyModel + " --prompts-file - < " + file, Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("17"));
}

TEST(GenerateCommand, ReadsAFileAsOnePrompt) {
  const std::string lines =
      "recall: sun=42, river=17, fox=80; river=\nrecall: sun=42, river=17, fox=80; sun=";
  const std::string file = write_file("prompt.txt", lines + "\n");
  const CommandResult full =
      attend("generate --model-path " + kTinyModel + " --max-new-tokens 4 --file " + file, Streams::kStdout);
  EXPECT_EQ(full.exit_code, 0);
  EXPECT_EQ(full.out,
            attend("generate --model-path " + kTinyModel + " --max-new-tokens 4 --prompt '" + lines + "'",
                   Streams::kStdout)
                .out);
}

TEST(GenerateCommand, SkipsAByteOrderMark) {
  const std::string file = write_file("bom.jsonl", "\xef\xbb\xbf{\"input_ids\": [5, 6]}\n");
  const CommandResult ran = attend(
      "generate --model-path " + kGolden + " --prompts-file " + file + " -n 1 --json", Streams::kStdout);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(ran.out).at("input_ids").size(), 2u);
}

TEST(GenerateCommand, RejectsDeeplyNestedJson) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const std::string file = write_file("deep.jsonl", "{\"input_ids\": " + deep + "}\n");
  const CommandResult ran = attend("generate --model-path " + kGolden + " --prompts-file " + file);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("deep.jsonl:1: expected JSON nested at most 64 levels deep"));
}

}  // namespace
}  // namespace attend
