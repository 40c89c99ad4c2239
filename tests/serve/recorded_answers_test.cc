// Answers that transformers rendered by the models' chat templates (scripts/make_tool_recordings.py) are read
// back: whole, cut off, byte by byte and in two pieces.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "attend/serve/protocols/chat_answer.h"

namespace attend::serve::recorded_answers_test {
namespace {

using End = ChatAnswer::End;

const std::filesystem::path kFolder = ATTEND_SOURCE_DIR "/tests/data/tool_calls";
constexpr size_t kRecords = 40;  // of each format

// Answer as clients see it.
struct Read {
  std::string text, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Read&) const = default;
};

struct Record {
  Json json;
  AnswerFormat format;

  std::string text() const { return json["text"].get<std::string>(); }
  // Text up to the place where max_tokens ends it.
  std::string generated() const { return text().substr(0, json.value("cut", text().size())); }
  End end() const { return json.contains("cut") ? End::kCut : End::kComplete; }
};

std::vector<Tool> tools() {
  std::ifstream file(kFolder / "tools.json");
  std::vector<Tool> all;
  for (const Json& tool : Json::parse(file)) all.push_back({tool["name"], tool["parameters"]});
  return all;
}

std::vector<Record> records_of(const ToolFormat& format) {
  std::ifstream file(kFolder / (std::string(format.name()) + ".jsonl"));
  std::vector<Record> records;
  std::string line;
  if (!std::getline(file, line)) return records;
  const Json header = Json::parse(line);
  AnswerFormat answer;
  answer.tools = tools();
  answer.tool_format = &format;
  if (header["reasoning"].is_string())
    answer.reasoning = &parse_reasoning_format(header["reasoning"].get<std::string>());
  while (std::getline(file, line)) {
    Record record{Json::parse(line), answer};
    record.format.inside_reasoning = record.json.value("inside", false);
    records.push_back(std::move(record));
  }
  return records;
}

Read read(const Record& record, const std::vector<std::string>& pieces, End end) {
  ChatAnswer answer(record.format);
  for (const std::string& piece : pieces) answer.push(piece, End::kNone);
  answer.push("", end);
  Read result{answer.joined(AnswerPart::Kind::kText), answer.joined(AnswerPart::Kind::kReasoning), {}};
  for (const AnswerBlock& block : answer.blocks())
    if (block.kind == AnswerPart::Kind::kCall) result.calls.emplace_back(block.name, block.text);
  return result;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n"), end = text.find_last_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, end + 1 - begin);
}

void check_complete(const Record& record) {
  const Read found = read(record, {record.text()}, End::kComplete);
  EXPECT_EQ(trimmed(found.text), record.json["content"].get<std::string>());
  EXPECT_EQ(trimmed(found.reasoning), record.json["reasoning"].get<std::string>());
  const Json& calls = record.json["calls"];
  ASSERT_EQ(found.calls.size(), calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(found.calls[i].first, calls[i][0].get<std::string>());
    // Some templates sort the arguments.
    EXPECT_EQ(nlohmann::json::parse(found.calls[i].second, nullptr, false),
              nlohmann::json::parse(calls[i][1].dump()))
        << found.calls[i].second;
  }
}

// The answer that max_tokens cut off is the start of the complete one. An incomplete marker is text.
void check_cut(const Record& record) {
  const Read whole = read(record, {record.text()}, End::kComplete);
  const Read found = read(record, {record.generated()}, End::kCut);
  if (!whole.text.starts_with(found.text)) {
    ASSERT_TRUE(found.text.starts_with(whole.text)) << found.text;
    EXPECT_TRUE(record.generated().ends_with(found.text.substr(whole.text.size()))) << found.text;
  }
  ASSERT_LE(found.calls.size(), whole.calls.size());
  for (size_t i = 0; i < found.calls.size(); ++i) {
    EXPECT_EQ(found.calls[i].first, whole.calls[i].first);
    EXPECT_TRUE(whole.calls[i].second.starts_with(found.calls[i].second)) << found.calls[i].second;
  }
}

TEST(RecordedAnswers, ExistForEveryFormat) {
  for (const ToolFormat& format : tool_formats())
    EXPECT_EQ(records_of(format).size(), kRecords) << format.name();
}

TEST(RecordedAnswers, AreReadAsTheyWereRendered) {
  for (const ToolFormat& format : tool_formats())
    for (const Record& record : records_of(format)) {
      SCOPED_TRACE(std::string(format.name()) + ", " + record.json["kind"].get<std::string>() + ": " +
                   record.generated());
      check_complete(record);
      if (record.json.contains("cut")) check_cut(record);
    }
}

// Each answer is read byte by byte. Splitting every one in two at each byte takes minutes, so each format has
// different ones that are.
TEST(RecordedAnswers, DoNotDependOnWhereTheyAreSplit) {
  constexpr size_t kStep = 20;
  size_t index = 0;
  for (const ToolFormat& format : tool_formats()) {
    ++index;
    for (const Record& record : records_of(format)) {
      ++index;
      const std::string text = record.generated();
      const Read whole = read(record, {text}, record.end());
      std::vector<std::string> bytes;
      for (const char byte : text) bytes.emplace_back(1, byte);
      ASSERT_EQ(read(record, bytes, record.end()), whole) << format.name() << ": " << text;
      if (index % kStep != 0) continue;
      for (size_t at = 1; at < text.size(); ++at)
        ASSERT_EQ(read(record, {text.substr(0, at), text.substr(at)}, record.end()), whole)
            << format.name() << ": " << text << ": " << at;
    }
  }
}

}  // namespace
}  // namespace attend::serve::recorded_answers_test
