// AsyncEmbedder batches requests of several threads into common steps.
#include "attend/engine/async_embedder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tests/support/test_files.h"

namespace attend {
namespace {

using Tokens = std::vector<int32_t>;

const EmbedderConfig kConfig{.model_path = ATTEND_SOURCE_DIR "/tests/goldens/embed-bert-mean"};

std::vector<Tokens> some_inputs(int seed) {
  std::vector<Tokens> inputs;
  for (int i = 0; i < 1 + seed % 3; ++i) {
    Tokens input;
    for (int j = 0; j <= (seed * 7 + i) % 40; ++j) input.push_back((seed * 31 + j * 5 + i) % 128);
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::future<EmbeddingResult> submit(AsyncEmbedder& embedder, std::vector<Tokens> inputs) {
  const auto promise = std::make_shared<std::promise<EmbeddingResult>>();
  embedder.submit(std::move(inputs),
                  [promise](EmbeddingResult result) { promise->set_value(std::move(result)); });
  return promise->get_future();
}

// Blocks the embedder's thread until open() is called, so that later requests queue up.
class Gate {
 public:
  explicit Gate(AsyncEmbedder& embedder) {
    // The embedder's thread may still wait when the gate is destroyed, so the callback owns the future.
    embedder.submit({{1}}, [this, opened = opened_.get_future().share()](const EmbeddingResult&) {
      entered_.set_value();
      opened.wait();
    });
    entered_.get_future().wait();
  }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> entered_, opened_;
};

TEST(AsyncEmbedder, ReturnsEachThreadItsVectors) {
  AsyncEmbedder embedder(kConfig);
  Embedder single(kConfig);
  std::vector<std::thread> threads;
  std::vector<std::vector<EmbeddingResult>> results(4);
  for (size_t t = 0; t < results.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i)
        results[t].push_back(submit(embedder, some_inputs(static_cast<int>(t) * 10 + i)).get());
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < results.size(); ++t)
    for (size_t i = 0; i < results[t].size(); ++i) {
      const auto expected = single.embed(some_inputs(static_cast<int>(t * 10 + i)));
      ASSERT_EQ(results[t][i].vectors.size(), expected.size()) << results[t][i].message;
      for (size_t v = 0; v < expected.size(); ++v)
        EXPECT_THAT(results[t][i].vectors[v], testing::Pointwise(testing::FloatNear(1e-5f), expected[v]));
    }
  EXPECT_EQ(embedder.metrics().num_requests, 40);
}

TEST(AsyncEmbedder, BatchesWaitingRequests) {
  AsyncEmbedder embedder(kConfig);
  Gate gate(embedder);
  std::vector<std::future<EmbeddingResult>> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(submit(embedder, {Tokens(5, 3), Tokens(6, 4)}));
  EXPECT_EQ(embedder.metrics().num_waiting, 40);
  const int64_t before = embedder.metrics().num_steps;
  gate.open();
  for (auto& answer : answers) EXPECT_EQ(answer.get().vectors.size(), 2u);
  EXPECT_EQ(embedder.metrics().num_steps, before + 1) << "220 tokens fit one step";
  EXPECT_EQ(embedder.metrics().num_waiting, 0);
}

TEST(AsyncEmbedder, SplitsARequestOverSteps) {
  AsyncEmbedder embedder(kConfig);
  Gate gate(embedder);
  auto large = submit(embedder, std::vector<Tokens>(600, Tokens(9, 3)));
  auto small = submit(embedder, {Tokens(4, 2)});
  gate.open();
  EXPECT_EQ(large.get().vectors.size(), 600u);
  EXPECT_EQ(small.get().vectors.size(), 1u);
  EXPECT_GE(embedder.metrics().num_steps, 3);
}

TEST(AsyncEmbedder, DropsCanceledRequests) {
  AsyncEmbedder embedder(kConfig);
  Gate gate(embedder);
  bool told = false;
  const uint64_t id = embedder.submit({Tokens(5, 3)}, [&](const EmbeddingResult&) { told = true; });
  auto next = submit(embedder, {Tokens(4, 2)});
  embedder.cancel(id);
  embedder.cancel(id);
  embedder.cancel(12345);
  EXPECT_EQ(embedder.metrics().num_waiting, 1);
  gate.open();
  EXPECT_EQ(next.get().vectors.size(), 1u);
  EXPECT_FALSE(told);
  EXPECT_EQ(embedder.metrics().num_finished[static_cast<size_t>(FinishReason::kAbort)], 1);
}

TEST(AsyncEmbedder, RejectsOnTheCallersThreadAndFailsPendingRequestsOnShutdown) {
  std::future<EmbeddingResult> pending;
  {
    AsyncEmbedder embedder(kConfig);
    test::expect_error(ErrorCode::kInvalidArgument, {"input 1", "token id 128"}, [&] {
      embedder.submit({{1}, {128}}, {});
    });
    test::expect_error(ErrorCode::kInvalidArgument, {"at least one"}, [&] { embedder.submit({}, {}); });
    Gate gate(embedder);
    pending = submit(embedder, {Tokens(5, 3)});
    gate.open();
  }
  // The request was computed before shutdown or failed by it.
  const EmbeddingResult result = pending.get();
  EXPECT_TRUE(result.vectors.size() == 1 || result.code == ErrorCode::kUnsupported);
}

TEST(TruncateAndNormalize, TruncatesThenNormalizes) {
  EXPECT_THAT(truncate_and_normalize({3.0f, 4.0f, 12.0f}, 2, true),
              testing::ElementsAre(testing::FloatEq(0.6f), testing::FloatEq(0.8f)));
  EXPECT_THAT(truncate_and_normalize({3.0f, 4.0f, 12.0f}, 2, false), testing::ElementsAre(3.0f, 4.0f));
  test::expect_error(ErrorCode::kInvalidArgument, {"dimensions 4", "1 to 3"}, [] {
    truncate_and_normalize({3.0f, 4.0f, 12.0f}, 4, true);
  });
}

}  // namespace
}  // namespace attend
