// Conversations without their oldest messages.
#include "attend/serve/protocols/truncate_messages.h"

#include <gtest/gtest.h>

#include <string>

namespace attend::serve {
namespace {

// Returns variables with messages of these roles (s, u, a and t), each with its position as its content.
std::string variables(const std::string& roles) {
  Json messages = Json::array();
  for (const char role : roles) {
    const char* const name = role == 's'   ? "system"
                             : role == 'u' ? "user"
                             : role == 'a' ? "assistant"
                                           : "tool";
    messages.push_back({{"role", name}, {"content", std::to_string(messages.size())}});
  }
  return Json({{"messages", messages}, {"enable_thinking", true}}).dump();
}

std::string contents(const std::string& json) {
  const Json all = Json::parse(json);
  EXPECT_EQ(all["enable_thinking"], true);
  std::string text;
  for (const Json& message : all["messages"]) text += message["content"].get<std::string>();
  return text;
}

TEST(MessageTruncation, DropsWholeTurnsAndKeepsSystemMessages) {
  const MessageTruncation truncation(variables("suattsuau"));
  ASSERT_EQ(truncation.max_dropped(), 4u);
  EXPECT_EQ(contents(truncation.without_oldest(0)), "012345678");
  EXPECT_EQ(contents(truncation.without_oldest(1)), "02345678");
  EXPECT_EQ(contents(truncation.without_oldest(2)), "05678") << "a call and its results";
  EXPECT_EQ(contents(truncation.without_oldest(3)), "0578");
  EXPECT_EQ(contents(truncation.without_oldest(4)), "058");
}

TEST(MessageTruncation, KeepsTheLastTurn) {
  EXPECT_EQ(MessageTruncation(variables("u")).max_dropped(), 0u);
  EXPECT_EQ(MessageTruncation(variables("ss")).max_dropped(), 0u);
  EXPECT_EQ(MessageTruncation(variables("uatt")).max_dropped(), 1u);
}

}  // namespace
}  // namespace attend::serve
