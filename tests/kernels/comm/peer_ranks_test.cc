// Collective operations over the memory of other GPUs. With one GPU, both ranks run on it.
#include "attend/kernels/comm/cuda/peer_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "attend/base/error.h"
#include "attend/kernels/common/element.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda {
namespace {

constexpr std::chrono::milliseconds kPatience{20000};

// Ranks with a stream and a thread each.
class GpuRanks : public testing::Test {
 protected:
  void SetUp() override {
    const int count = attend::cuda::device_count();
    if (count == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
    for (int rank = 0; rank < kRanks; ++rank) {
      devices_.push_back({DeviceType::kCuda, rank % count});
      streams_.push_back(std::make_unique<attend::cuda::OwnedStream>(devices_.back()));
    }
  }
  void make(size_t slot_bytes = 1 << 20, std::chrono::milliseconds timeout = kPatience) {
    ranks_ = std::make_unique<PeerRanks>(devices_, slot_bytes, timeout);
  }
  Communicator& rank(int rank) { return ranks_->communicator(rank); }
  Stream& stream(int rank) { return streams_[static_cast<size_t>(rank)]->get(); }
  Device device(int rank) const { return devices_[static_cast<size_t>(rank)]; }

  // Queues task(rank) on a thread per rank, and waits for the streams.
  void run(const std::function<void(int rank)>& task) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        const attend::cuda::DeviceScope scope(device(rank));
        EXPECT_NO_THROW(task(rank));
        EXPECT_NO_THROW(attend::cuda::synchronize(stream(rank)));
      });
    for (std::thread& thread : threads) thread.join();
  }

  // Elements of one rank: normal numbers, zeros of both signs.
  static Tensor elements(int rank, std::initializer_list<int64_t> shape, DType dtype) {
    std::mt19937 generator(static_cast<unsigned>(rank) + 1);
    std::normal_distribution<float> normal;
    Tensor x = Tensor::empty(shape, dtype);
    for (int64_t i = 0; i < x.view().num_elements(); ++i) {
      const auto kind = generator() % 16;
      store(x, i, kind == 0 ? 0.0f : kind == 1 ? -0.0f : normal(generator));
    }
    return x;
  }
  static void store(const Tensor& x, int64_t i, float value) {
    visit_float_dtype(
        x.dtype(), [&]<class T>(TypeTag<T>) { static_cast<T*>(x.view().data)[i] = static_cast<T>(value); });
  }
  static double load(const Tensor& x, int64_t i) {
    double value = 0.0;
    visit_float_dtype(x.dtype(), [&]<class T>(TypeTag<T>) {
      value = static_cast<float>(static_cast<const T*>(x.view().data)[i]);
    });
    return value;
  }
  Tensor to_host(const Tensor& x, int rank) {
    Tensor host = Tensor::empty({x.view().num_elements()}, x.dtype());
    attend::cuda::copy(x.view().reshape({x.view().num_elements()}), host, stream(rank));
    attend::cuda::synchronize(stream(rank));
    return host;
  }
  static double epsilon(DType dtype) {
    return dtype == DType::kF32 ? 0x1p-22 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
  }

  static constexpr int kRanks = 2;
  std::vector<Device> devices_;
  std::vector<std::unique_ptr<attend::cuda::OwnedStream>> streams_;
  std::unique_ptr<PeerRanks> ranks_;
};

TEST_F(GpuRanks, SumOfAnySizeMatchesFloat64OnTheGpu) {
  make(1 << 18);  // larger sums are several launches
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (const int64_t bytes : {16, 48, 4096, 65536, 300 << 10, 2 << 20}) {
      const int64_t size = bytes / static_cast<int64_t>(size_of(dtype));
      std::vector<Tensor> host, x(kRanks);
      for (int r = 0; r < kRanks; ++r) host.push_back(elements(r, {1, size}, dtype));
      for (int r = 0; r < kRanks; ++r)
        x[static_cast<size_t>(r)] = attend::cuda::copy_to(host[static_cast<size_t>(r)], device(r));
      run([&](int r) { rank(r).all_reduce(x[static_cast<size_t>(r)], stream(r)); });
      const Tensor first = to_host(x[0], 0), second = to_host(x[1], 1);
      ASSERT_EQ(std::memcmp(first.view().data, second.view().data, first.view().num_bytes()), 0)
          << dtype << bytes;
      for (int64_t i = 0; i < size; ++i) {
        const double expected = load(host[0], i) + load(host[1], i);
        ASSERT_NEAR(load(first, i), expected, epsilon(dtype) * std::abs(expected))
            << dtype << " element " << i;
      }
    }
}

TEST_F(GpuRanks, SumWithNanIsNanOnTheGpu) {
  make();
  std::vector<Tensor> x;
  for (int r = 0; r < kRanks; ++r) {
    const Tensor host = elements(r, {1, 4096}, DType::kBF16);
    store(host, 17 + r, std::nanf(""));
    x.push_back(attend::cuda::copy_to(host, device(r)));
  }
  run([&](int r) { rank(r).all_reduce(x[static_cast<size_t>(r)], stream(r)); });
  for (int r = 0; r < kRanks; ++r) {
    const Tensor sum = to_host(x[static_cast<size_t>(r)], r);
    for (int64_t i = 0; i < 4096; ++i) ASSERT_EQ(std::isnan(load(sum, i)), i == 17 || i == 18) << i;
  }
}

TEST_F(GpuRanks, AddToTheStreamAndDeferTheNextNormOnTheGpu) {
  make(1 << 16);
  for (const int64_t rows : {1, 3, 64}) {
    constexpr int64_t kDim = 2064;
    std::vector<Tensor> host, x, sum, squares;
    const Tensor stream_host = elements(7, {rows, kDim}, DType::kBF16),
                 weight_host = elements(8, {kDim}, DType::kBF16);
    std::vector<Tensor> weight;
    for (int r = 0; r < kRanks; ++r) {
      host.push_back(elements(r, {rows, kDim}, DType::kBF16));
      x.push_back(attend::cuda::copy_to(host.back(), device(r)));
      sum.push_back(attend::cuda::copy_to(stream_host, device(r)));
      weight.push_back(attend::cuda::copy_to(weight_host, device(r)));
      squares.push_back(attend::cuda::zeros({rows, kDim / 16}, DType::kF32, device(r)));
    }
    run([&](int r) {
      const auto i = static_cast<size_t>(r);
      rank(r).all_reduce_add(x[i], sum[i],
                             {.weight = weight[i], .scaled = x[i], .partial_squares = squares[i]}, stream(r));
    });
    for (int r = 0; r < kRanks; ++r) {
      const auto i = static_cast<size_t>(r);
      const Tensor got = to_host(sum[i], r), scaled = to_host(x[i], r), squared = to_host(squares[i], r);
      for (int64_t at = 0; at < rows * kDim; ++at) {
        const double expected = load(stream_host, at) + load(host[0], at) + load(host[1], at);
        ASSERT_NEAR(load(got, at), expected, 0x1p-8 * std::abs(expected) + 1e-6) << at;
        const double product = load(got, at) * load(weight_host, at % kDim);
        ASSERT_NEAR(load(scaled, at), product, 0x1p-8 * std::abs(product)) << at;
      }
      for (int64_t group = 0; group < rows * kDim / 16; ++group) {
        double expected = 0.0;
        for (int64_t at = group * 16; at < group * 16 + 16; ++at) expected += load(got, at) * load(got, at);
        ASSERT_NEAR(load(squared, group), expected, 1e-5 * expected) << group;
      }
    }
  }
}

TEST_F(GpuRanks, GatherColumnsOnTheGpu) {
  make(1 << 14);  // some rows at a time
  constexpr int64_t kRows = 37, kColumns = 1000;
  const std::vector<int64_t> bounds = {0, 448, kColumns};
  std::vector<Tensor> host, x;
  for (int r = 0; r < kRanks; ++r) {
    host.push_back(elements(r, {kRows, kColumns}, DType::kF32));
    x.push_back(attend::cuda::copy_to(host.back(), device(r)));
  }
  run([&](int r) { rank(r).all_gather(x[static_cast<size_t>(r)], {1, bounds}, stream(r)); });
  for (int r = 0; r < kRanks; ++r) {
    const Tensor all = to_host(x[static_cast<size_t>(r)], r);
    for (int64_t i = 0; i < kRows * kColumns; ++i)
      ASSERT_EQ(load(all, i), load(host[i % kColumns < bounds[1] ? 0 : 1], i)) << i;
  }
}

// Many operations without a synchronization, then the same as graph replays; one rank is often late.
TEST_F(GpuRanks, RepeatInGraphsOnTheGpu) {
  make();
  constexpr int64_t kSize = 8192;
  constexpr int kOperations = 7, kReplays = 180;
  std::vector<Tensor> x;
  for (int r = 0; r < kRanks; ++r) {
    Tensor host = Tensor::empty({1, kSize}, DType::kF32);
    for (int64_t i = 0; i < kSize; ++i) store(host, i, std::ldexp(static_cast<float>(r + 1), -100));
    x.push_back(attend::cuda::copy_to(host, device(r)));
  }
  // Both ranks have rank 0's x, which then doubles.
  run([&](int r) {
    std::mt19937 generator(static_cast<unsigned>(r));
    const auto i = static_cast<size_t>(r);
    const auto queue = [&] {
      for (int k = 0; k < kOperations; ++k) rank(r).broadcast(x[i], k % kRanks, stream(r));
      rank(r).all_reduce(x[i], stream(r));
    };
    queue();
    attend::cuda::synchronize(stream(r));
    attend::cuda::Graph graph(stream(r), queue);
    for (int k = 0; k < kReplays; ++k) {
      if (generator() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(generator() % 300));
      graph.launch(stream(r));
      if (k % 100 == 99) attend::cuda::synchronize(stream(r));
    }
  });
  EXPECT_FALSE(ranks_->stopped());
  const Tensor first = to_host(x[0], 0), second = to_host(x[1], 1);
  EXPECT_EQ(std::memcmp(first.view().data, second.view().data, first.view().num_bytes()), 0);
  EXPECT_EQ(load(first, kSize - 1), std::ldexp(1.0, kReplays + 1 - 100));
}

TEST_F(GpuRanks, EndTheirWaitsOnTheGpu) {
  for (const bool stops : {true, false}) {
    make(1 << 16, stops ? kPatience : std::chrono::milliseconds(50));
    const Tensor x = attend::cuda::zeros({1, 1024}, DType::kF32, device(0));
    rank(0).all_reduce(x, stream(0));  // without rank 1
    if (stops) ranks_->stop();
    attend::cuda::synchronize(stream(0));
    EXPECT_TRUE(ranks_->stopped());
  }
}

}  // namespace
}  // namespace attend::kernels::cuda
