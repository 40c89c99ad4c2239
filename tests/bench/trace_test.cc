#include "attend/bench/serving/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "tests/support/error_message.h"

namespace attend::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_message;

ModelSpec make_spec(int vocab_size) {
  ModelSpec spec;
  spec.vocab_size = vocab_size;
  return spec;
}

std::string write_trace(const std::string& text) {
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string path = testing::TempDir() + "/attend_trace_" + test + ".jsonl";
  std::ofstream(path) << text;
  return path;
}

std::string error_text(const std::string& text) {
  const std::string path = write_trace(text);
  return error_message(ErrorCode::kCorruptFile, [&] { (void)read_trace(path, {}, nullptr); });
}

// Mean and standard deviation of the time between arrivals.
std::pair<double, double> arrival_gaps(const Trace& trace) {
  double sum = 0.0, squares = 0.0;
  for (size_t i = 1; i < trace.size(); ++i) {
    const double gap = trace[i].arrival - trace[i - 1].arrival;
    sum += gap;
    squares += gap * gap;
  }
  const double count = static_cast<double>(trace.size() - 1), mean = sum / count;
  return {mean, std::sqrt(squares / count - mean * mean)};
}

TEST(Trace, HonorsRequestRateAndBurstiness) {
  TraceOptions options{.num_conversations = 20000,
                       .request_rate = 4.0,
                       .input = {.lowest = 1, .highest = 1},
                       .output = {.lowest = 1, .highest = 1}};
  // A gamma distribution of shape k has mean 1 / rate and standard deviation 1 / (rate sqrt(k)).
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    options.burstiness = burstiness;
    const auto [mean, deviation] = arrival_gaps(make_trace(options, make_spec(100)));
    EXPECT_NEAR(mean, 0.25, 0.015) << burstiness;
    EXPECT_NEAR(deviation, 0.25 / std::sqrt(burstiness), 0.03) << burstiness;
  }
  options.request_rate = std::numeric_limits<double>::infinity();
  EXPECT_EQ(make_trace(options, make_spec(100)).back().arrival, 0.0);
}

TEST(Trace, IsDeterminedByItsSeed) {
  TraceOptions options{.num_conversations = 5, .request_rate = 1.0, .input = {.lowest = 1, .highest = 9}};
  const ModelSpec spec = make_spec(1000);
  const Trace first = make_trace(options, spec), again = make_trace(options, spec);
  options.seed = 1;
  const Trace other = make_trace(options, spec);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].arrival, again[i].arrival);
    EXPECT_EQ(first[i].turns[0].tokens, again[i].turns[0].tokens);
  }
  EXPECT_NE(first[0].turns[0].tokens, other[0].turns[0].tokens);
}

TEST(Trace, ContainsTheSharedPrefixAndAllTurns) {
  const TraceOptions options{.num_conversations = 40,
                             .input = {.lowest = 3, .highest = 3},
                             .output = {.lowest = 2, .highest = 2},
                             .num_shared_prefixes = 3,
                             .shared_prefix_tokens = 8,
                             .num_turns = 2};
  std::set<std::vector<int32_t>> prefixes;
  const Trace trace = make_trace(options, make_spec(1000));
  for (const Conversation& conversation : trace) {
    ASSERT_EQ(conversation.turns.size(), 2u);
    const std::vector<int32_t>& first = conversation.turns[0].tokens;
    ASSERT_EQ(first.size(), 11u);
    prefixes.insert({first.begin(), first.begin() + 8});
    EXPECT_EQ(conversation.turns[1].tokens.size(), 3u);
    EXPECT_EQ(conversation.turns[1].output_tokens, 2);
  }
  EXPECT_EQ(prefixes.size(), 3u);
  EXPECT_EQ(num_requests(trace), 80);
}

TEST(Trace, IsRejectedIfItExceedsMemory) {
  for (const TraceOptions& options :
       {TraceOptions{.num_conversations = 1 << 24, .input = {.lowest = 1, .highest = 1 << 24}},
        TraceOptions{.num_turns = 1 << 24},
        TraceOptions{
            .num_conversations = 1, .num_shared_prefixes = 1 << 24, .shared_prefix_tokens = 1 << 24}})
    EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { (void)make_trace(options, make_spec(9)); }),
                HasSubstr("tokens in prompts: at most 268435456; lower --num-prompts"));
}

TEST(Trace, ContainsNoImageTokens) {
  ModelSpec spec = make_spec(2);
  spec.image_token_id = 1;
  for (const Conversation& conversation : make_trace({.num_conversations = 4}, spec))
    for (const int32_t token : conversation.turns[0].tokens) ASSERT_EQ(token, 0);
}

TEST(LengthDistribution, IsParsedAndSampled) {
  std::mt19937_64 random(1);
  EXPECT_EQ(LengthDistribution::parse("--n", "512").sample(random), 512);
  const auto even = LengthDistribution::parse("--n", "3:5");
  std::set<int> lengths;
  for (int i = 0; i < 100; ++i) lengths.insert(even.sample(random));
  EXPECT_THAT(lengths, ElementsAre(3, 4, 5));
  const auto skewed = LengthDistribution::parse("--n", "lognormal:100:1:300");
  int num_below = 0, num_at_most = 0;
  for (int i = 0; i < 2000; ++i) {
    const int length = skewed.sample(random);
    ASSERT_GE(length, 1);
    ASSERT_LE(length, 300);
    num_below += length < 100 ? 1 : 0;
    num_at_most += length == 300 ? 1 : 0;
  }
  EXPECT_NEAR(num_below, 1000, 100) << "half of them";
  EXPECT_NEAR(num_at_most, 272, 80) << "P(z > ln 3) = 0.136";
}

TEST(LengthDistribution, ReportsAcceptedValues) {
  for (const char* text : {"", "0", "-3", "5:3", "1:2:3", "lognormal:9:1", "lognormal:9:-1:20", "a", "5x",
                           "lognormal:nan:1:20", "99999999999"})
    EXPECT_THAT(error_message(ErrorCode::kInvalidArgument,
                              [&] { (void)LengthDistribution::parse("--input-len", text); }),
                HasSubstr("--input-len '" + std::string(text) + "': expected tokens, 1 to 16777216"))
        << text;
}

TEST(TraceFile, IsReadInOrderOfArrival) {
  const std::string path =
      write_trace(R"({"input_ids": [1, 2], "output_len": 7, "arrival": 2.5})"
                  "\n\n"
                  R"({"turns": [{"input_ids": [3]}, {"input_ids": [4, 5], "output_len": 1}], "arrival": 0})");
  const Trace trace = read_trace(path, {.output = {.lowest = 9, .highest = 9}}, nullptr);
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].arrival, 0.0);
  ASSERT_EQ(trace[0].turns.size(), 2u);
  EXPECT_EQ(trace[0].turns[0].output_tokens, 9);
  EXPECT_THAT(trace[0].turns[1].tokens, ElementsAre(4, 5));
  EXPECT_EQ(trace[1].arrival, 2.5);
  EXPECT_EQ(trace[1].turns[0].output_tokens, 7);
}

TEST(TraceFile, NamesLineAndFieldThatItCannotReplay) {
  EXPECT_THAT(error_text("{}\n"), HasSubstr(":1 {}: expected an object with \"prompt\" or \"input_ids\""));
  EXPECT_THAT(error_text("{\"input_ids\": [1]}\n{\"input_ids\": [1], \"arrival\": 1}"),
              HasSubstr(":2: arrival 1: expected none, as in the first line"));
  EXPECT_THAT(error_text("{\"input_ids\": [1], \"arrival\": -1}"), HasSubstr("expected seconds"));
  EXPECT_THAT(error_text("{\"input_ids\": []}"), HasSubstr("at least one"));
  EXPECT_THAT(error_text("{\"turns\": []}"), HasSubstr("expected turns, at least one"));
  EXPECT_THAT(error_text("{\"input_ids\": [1], \"output_len\": 0}"), HasSubstr("output_len 0"));
  EXPECT_THAT(error_text("nonsense"), HasSubstr(":1"));
  EXPECT_THAT(error_text("{\"input_ids\": [1], \"output_length\": 9}"),
              HasSubstr("output_length 9: expected no such field; accepted: prompt, input_ids, output_len"));
  EXPECT_THAT(error_text("{\"turns\": [{\"input_ids\": [1], \"arrival\": 1}]}"),
              HasSubstr("turns[0].arrival 1"));
  EXPECT_THAT(error_text("{\"turns\": [{\"input_ids\": [1]}], \"output_len\": 4}"),
              HasSubstr("output_len 4: expected no such field next to \"turns\""));
  const std::string noted = write_trace("{\"input_ids\": [1], \"note\": null}");
  EXPECT_EQ(read_trace(noted, {}, nullptr).size(), 1u);
  const std::string timed = write_trace("{\"input_ids\": [1], \"arrival\": 2}");
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument,
                            [&] { (void)read_trace(timed, {.request_rate = 3.0}, nullptr); }),
              HasSubstr("--request-rate 3: the trace has its own arrivals"));
  const std::string text = write_trace("{\"prompt\": \"hello\"}");
  EXPECT_THAT(error_message(ErrorCode::kUnsupported, [&] { (void)read_trace(text, {}, nullptr); }),
              HasSubstr("no tokenizer.json"));
  const std::string empty = write_trace("\n");
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { (void)read_trace(empty, {}, nullptr); }),
              HasSubstr("no requests"));
}

}  // namespace
}  // namespace attend::bench
