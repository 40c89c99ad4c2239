// Collective operations of ranks that are threads, and their ends when a rank fails.
#include "attend/kernels/comm/cpu/rank_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "attend/base/error.h"

namespace attend::kernels::cpu {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr std::chrono::milliseconds kPatience{60000};

// Calls task(rank) on a thread per rank, and returns the message of each rank's error; empty: none.
std::vector<std::string> run(int num_ranks, const std::function<void(int rank)>& task) {
  std::vector<std::string> errors(static_cast<size_t>(num_ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        task(rank);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<float> random_numbers(int rank, int64_t count) {
  std::mt19937 generator(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = normal(generator) * (rank % 2 == 0 ? 1e4f : 1e-3f);
  return numbers;
}

// x of each rank.
std::vector<Tensor> random_tensors(int num_ranks, int64_t rows, int64_t columns) {
  std::vector<Tensor> tensors;
  for (int rank = 0; rank < num_ranks; ++rank)
    tensors.push_back(Tensor::from<float>(random_numbers(rank, rows * columns), {rows, columns}));
  return tensors;
}

// Sum in rank order, with one rounding per rank.
std::vector<float> ordered_sum(int num_ranks, int64_t count) {
  std::vector<float> sum = random_numbers(0, count);
  for (int rank = 1; rank < num_ranks; ++rank) {
    const std::vector<float> x = random_numbers(rank, count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
  }
  return sum;
}

std::vector<float> numbers_of(const TensorView& x) {
  return {x.as<const float>(), x.as<const float>() + x.num_elements()};
}

class RankMemoryTest : public testing::TestWithParam<int> {
 protected:
  int num_ranks() const { return GetParam(); }
  Communicator& rank(int rank) { return memory_.communicator(rank); }
  void run_all(const std::function<void(int rank)>& task) {
    EXPECT_THAT(run(num_ranks(), task), Each(std::string()));
  }

  RankMemory memory_{GetParam(), kPatience};
  Stream stream_;
};

TEST_P(RankMemoryTest, SumsInRankOrder) {
  for (const int64_t columns : {1, 15, 16, 33, 5000}) {
    const std::vector<Tensor> x = random_tensors(num_ranks(), 3, columns);
    run_all([&](int r) { rank(r).all_reduce(x[static_cast<size_t>(r)], stream_); });
    for (const Tensor& each : x) EXPECT_EQ(numbers_of(each), ordered_sum(num_ranks(), 3 * columns));
  }
}

TEST_P(RankMemoryTest, GathersRangesOfRowsAndColumns) {
  for (const int axis : {0, 1}) {
    const std::vector<Tensor> x = random_tensors(num_ranks(), 23, 31);
    std::vector<int64_t> bounds = {0};
    // Ranges of different sizes; those of ranks above 1 may be empty.
    for (int r = 1; r < num_ranks(); ++r) bounds.push_back(std::min(22, 9 + 6 * r));
    bounds.push_back(axis == 0 ? 23 : 31);
    std::vector<float> expected;
    for (int64_t row = 0; row < 23; ++row)
      for (int64_t column = 0; column < 31; ++column) {
        size_t owner = 0;
        while (bounds[owner + 1] <= (axis == 0 ? row : column)) ++owner;
        expected.push_back(x[owner].view()[row].as<const float>()[column]);
      }
    run_all([&](int r) { rank(r).all_gather(x[static_cast<size_t>(r)], {axis, bounds}, stream_); });
    for (const Tensor& each : x) EXPECT_EQ(numbers_of(each), expected);
  }
}

TEST_P(RankMemoryTest, ScattersSums) {
  const std::vector<float> sum = ordered_sum(num_ranks(), 24 * 10);
  for (const int axis : {0, 1}) {
    const std::vector<Tensor> x = random_tensors(num_ranks(), 24, 10);
    std::vector<int64_t> bounds;
    for (int r = 0; r <= num_ranks(); ++r) bounds.push_back((axis == 0 ? 24 : 10) * r / num_ranks());
    run_all([&](int r) { rank(r).reduce_scatter(x[static_cast<size_t>(r)], {axis, bounds}, stream_); });
    for (int r = 0; r < num_ranks(); ++r)
      for (int64_t row = 0; row < 24; ++row)
        for (int64_t column = 0; column < 10; ++column) {
          const int64_t at = axis == 0 ? row : column;
          if (at < bounds[static_cast<size_t>(r)] || at >= bounds[static_cast<size_t>(r) + 1]) continue;
          EXPECT_EQ(x[static_cast<size_t>(r)].view()[row].as<const float>()[column],
                    sum[static_cast<size_t>(row * 10 + column)]);
        }
  }
}

TEST_P(RankMemoryTest, BroadcastsFromAnyRank) {
  for (int root = 0; root < num_ranks(); ++root) {
    const std::vector<Tensor> x = random_tensors(num_ranks(), 2, 9);
    run_all([&](int r) { rank(r).broadcast(x[static_cast<size_t>(r)], root, stream_); });
    for (const Tensor& each : x) EXPECT_EQ(numbers_of(each), random_numbers(root, 18));
  }
}

// Ranks run apart by one operation at most. A missing barrier would let a fast rank overwrite what others
// read.
TEST_P(RankMemoryTest, RepeatsOperations) {
  run_all([&](int r) {
    Tensor x = Tensor::zeros({1, 64}, DType::kF32);
    for (int i = 0; i < 2000; ++i) {
      std::fill_n(x.view().as<float>(), 64, static_cast<float>(i + r));
      rank(r).all_reduce(x, stream_);
      const int n = num_ranks();
      ASSERT_EQ(x.view().as<const float>()[63], static_cast<float>(n * i + n * (n - 1) / 2));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Of, RankMemoryTest, testing::Values(1, 2, 3, 4));

// The last rank aborts at each point of a sequence of operations, in one of which the others wait or will
// wait.
TEST(FailingRank, EndsTheOperationsOfAllRanks) {
  constexpr int kRanks = 3;
  const std::vector<int64_t> bounds = {0, 1, 2, 3};
  const std::vector<std::function<void(Communicator&, const Tensor&)>> operations = {
      [](Communicator& rank, const Tensor& x) {
        Stream stream;
        rank.all_reduce(x, stream);
      },
      [&](Communicator& rank, const Tensor& x) {
        Stream stream;
        rank.all_gather(x, {0, bounds}, stream);
      },
      [&](Communicator& rank, const Tensor& x) {
        Stream stream;
        rank.reduce_scatter(x, {0, bounds}, stream);
      },
      [](Communicator& rank, const Tensor& x) {
        Stream stream;
        rank.broadcast(x, 1, stream);
      },
  };
  for (size_t phase = 0; phase <= operations.size(); ++phase) {
    RankMemory memory(kRanks, kPatience);
    const auto errors = run(kRanks, [&](int rank) {
      const Tensor x = Tensor::zeros({3, 8}, DType::kF32);
      for (size_t i = 0; i <= operations.size(); ++i) {
        if (rank == kRanks - 1 && i == phase) return memory.barrier().abort(rank, "planted");
        operations[i % operations.size()](memory.communicator(rank), x);
      }
    });
    EXPECT_EQ(errors[2], "");
    EXPECT_THAT(errors[0], HasSubstr("rank 2: planted"));
    EXPECT_THAT(errors[1], HasSubstr("rank 2: planted"));
    EXPECT_TRUE(memory.barrier().aborted());
    Stream stream;
    EXPECT_THROW(memory.communicator(2).broadcast(Tensor::zeros({1}, DType::kF32), 0, stream), Error);
  }
}

TEST(FailingRank, TimesOutIfItDoesNotArrive) {
  RankMemory memory(3, std::chrono::milliseconds(20));
  const auto errors = run(3, [&](int rank) {
    Stream stream;
    const Tensor x = Tensor::zeros({4}, DType::kF32);
    if (rank != 1) memory.communicator(rank).all_reduce(x, stream);
  });
  EXPECT_THAT(errors[0],
              HasSubstr("all_reduce: wait 1 of rank 0 timed out after 20 ms; missing: rank 1 after 0"));
}

TEST(FailingRank, IsFoundByItsOperation) {
  RankMemory memory(2, kPatience);
  const auto errors = run(2, [&](int rank) {
    Stream stream;
    const Tensor x = Tensor::zeros({rank + 1}, DType::kF32);
    memory.communicator(rank).all_reduce(x, stream);
  });
  EXPECT_THAT(errors, Each(HasSubstr("ranks call different operations: rank 1 all_reduce")));
}

}  // namespace
}  // namespace attend::kernels::cpu
