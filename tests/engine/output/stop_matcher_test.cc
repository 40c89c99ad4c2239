#include "attend/engine/output/stop_matcher.h"

#include <gtest/gtest.h>

namespace attend {
namespace {

// Pushes `text` byte by byte. Returns the text that a caller receives.
std::string push_bytewise(StopMatcher& matcher, std::string_view text) {
  std::string returned;
  for (char byte : text) returned += matcher.push(std::string_view(&byte, 1));
  return returned;
}

TEST(StopMatcher, ReturnsTextAtOnceWhenNoStopStringCanMatch) {
  StopMatcher matcher({"STOP"});
  EXPECT_EQ(matcher.push("hello"), "hello");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, CutsAtTheStopString) {
  StopMatcher matcher({"STOP"});
  EXPECT_EQ(matcher.push("abcSTOPdef"), "abc");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, BuffersTextThatMayBecomeAStopString) {
  StopMatcher matcher({"\n\n"});
  EXPECT_EQ(matcher.push("line\n"), "line");
  EXPECT_EQ(matcher.push("next"), "\nnext");
}

TEST(StopMatcher, FindsAStopStringAcrossAnySplit) {
  StopMatcher matcher({"</answer>"});
  EXPECT_EQ(push_bytewise(matcher, "<a></answ</answer>tail"), "<a></answ");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcher, StopsAtTheEarliestOfSeveral) {
  StopMatcher matcher({"world", "lo w"});
  EXPECT_EQ(matcher.push("hello world"), "hel");
}

TEST(StopMatcher, FlushReturnsAPartialMatch) {
  StopMatcher matcher({"abcd"});
  EXPECT_EQ(push_bytewise(matcher, "xxabc"), "xx");
  EXPECT_EQ(matcher.flush(), "abc");
}

TEST(StopMatcher, FindsAStopStringAfterAnOverlappingPartialMatch) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(push_bytewise(matcher, "aaab"), "a");
  EXPECT_TRUE(matcher.matched());
}

}  // namespace
}  // namespace attend
