#include "attend/kernels/comm/cpu/rank_memory.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/base/parallel.h"

namespace attend::kernels::cpu {
namespace {

// Elements that one thread sums at a time: they stay in the first-level cache.
constexpr int64_t kChunk = 2048;

void require_matrix(const TensorView& x, const RankRanges& ranges, int num_ranks) {
  require(x.rank == 2 && x.strides[1] == 1, "x ", x, ": expected a matrix with contiguous rows");
  require(ranges.axis == 0 || ranges.axis == 1, "axis ", ranges.axis, ": expected 0 or 1");
  require(std::ssize(ranges.bounds) == num_ranks + 1 && ranges.bounds.front() == 0 &&
              ranges.bounds.back() == x.shape[static_cast<size_t>(ranges.axis)] &&
              std::ranges::is_sorted(ranges.bounds),
          "bounds: expected ", num_ranks + 1, " ascending numbers from 0 to ",
          x.shape[static_cast<size_t>(ranges.axis)]);
}

void copy_rows(const TensorView& from, const TensorView& to) {
  const size_t row_bytes = static_cast<size_t>(from.shape[1]) * size_of(from.dtype);
  parallel_for_rows(from.shape[0], from.shape[1],
                    [&](int64_t row) { std::memcpy(to[row].data, from[row].data, row_bytes); });
}

}  // namespace

class RankMemory::Rank final : public Communicator {
 public:
  Rank(RankMemory& memory, int rank) : memory_(memory), rank_(rank) {}

  int rank() const override { return rank_; }
  int num_ranks() const override { return memory_.barrier_.num_ranks(); }

  void all_reduce(const TensorView& x, Stream&) override {
    require(x.is_contiguous() && x.dtype == DType::kF32, "x ", x,
            ": expected a contiguous tensor of float32");
    const Call call{.name = "all_reduce", .x = x};
    memory_.begin(rank_, call);
    const int64_t size = x.num_elements(), own = round_up(ceil_div(size, int64_t{num_ranks()}), int64_t{16});
    memory_.sum(std::min(size, rank_ * own), std::min(size, (rank_ + 1) * own), 0, num_ranks());
    memory_.end(rank_, call.name);
  }

  void all_gather(const TensorView& x, const RankRanges& ranges, Stream&) override {
    require_matrix(x, ranges, num_ranks());
    const Call call{.name = "all_gather", .x = x, .axis = ranges.axis};
    memory_.begin(rank_, call);
    for (int other = 0; other < num_ranks(); ++other)
      if (other != rank_)
        copy_rows(range(memory_.calls_[static_cast<size_t>(other)].x, ranges, other),
                  range(x, ranges, other));
    memory_.end(rank_, call.name);
  }

  void reduce_scatter(const TensorView& x, const RankRanges& ranges, Stream&) override {
    require_matrix(x, ranges, num_ranks());
    require(x.is_contiguous() && x.dtype == DType::kF32, "x ", x,
            ": expected a contiguous tensor of float32");
    const Call call{.name = "reduce_scatter", .x = x, .axis = ranges.axis};
    memory_.begin(rank_, call);
    const TensorView own = range(x, ranges, rank_);
    for (int64_t row = 0; row < own.shape[0]; ++row) {
      const int64_t begin = own[row].as<float>() - x.as<float>();
      memory_.sum(begin, begin + own.shape[1], rank_, rank_ + 1);
    }
    memory_.end(rank_, call.name);
  }

  void broadcast(const TensorView& x, int root, Stream&) override {
    require(x.is_contiguous(), "x ", x, ": expected a contiguous tensor");
    require(root >= 0 && root < num_ranks(), "root ", root, ": expected 0 to ", num_ranks() - 1);
    const Call call{.name = "broadcast", .x = x, .root = root};
    memory_.begin(rank_, call);
    if (rank_ != root) std::memcpy(x.data, memory_.calls_[static_cast<size_t>(root)].x.data, x.num_bytes());
    memory_.end(rank_, call.name);
  }

 private:
  static TensorView range(const TensorView& x, const RankRanges& ranges, int rank) {
    const auto index = static_cast<size_t>(rank);
    return x.slice(ranges.axis, ranges.bounds[index], ranges.bounds[index + 1]);
  }

  RankMemory& memory_;
  const int rank_;
};

RankMemory::RankMemory(int num_ranks, std::chrono::milliseconds timeout)
    : barrier_(num_ranks, timeout), calls_(static_cast<size_t>(num_ranks)) {
  for (int rank = 0; rank < num_ranks; ++rank) ranks_.push_back(std::make_unique<Rank>(*this, rank));
}

RankMemory::~RankMemory() = default;

Communicator& RankMemory::communicator(int rank) { return *ranks_[static_cast<size_t>(rank)]; }

void RankMemory::begin(int rank, const Call& call) {
  calls_[static_cast<size_t>(rank)] = call;
  barrier_.wait(rank, call.name);
  // All ranks find the same difference, so that none reads tensors of another size.
  const Call& first = calls_.front();
  for (size_t other = 1; other < calls_.size(); ++other) {
    const Call& own = calls_[other];
    const auto shape = [](const TensorView& x) {
      return std::span(x.shape).first(static_cast<size_t>(x.rank));
    };
    if (std::strcmp(own.name, first.name) == 0 && own.root == first.root && own.axis == first.axis &&
        own.x.dtype == first.x.dtype && std::ranges::equal(shape(own.x), shape(first.x)))
      continue;
    fail(ErrorCode::kInternal, "ranks call different operations: rank ", other, " ", own.name, " of ", own.x,
         ", rank 0 ", first.name, " of ", first.x);
  }
}

void RankMemory::sum(int64_t begin, int64_t end, int first, int last) const {
  const int64_t num_chunks = ceil_div(end - begin, kChunk);
  const auto sum_chunk = [&](int64_t chunk) {
    const int64_t from = begin + chunk * kChunk, count = std::min(kChunk, end - from);
    std::array<float, kChunk> total;
    std::copy_n(calls_.front().x.as<float>() + from, count, total.begin());
    for (size_t rank = 1; rank < calls_.size(); ++rank) {
      const float* const x = calls_[rank].x.as<float>() + from;
      for (int64_t i = 0; i < count; ++i) total[static_cast<size_t>(i)] += x[i];
    }
    for (int rank = first; rank < last; ++rank)
      std::copy_n(total.begin(), count, calls_[static_cast<size_t>(rank)].x.as<float>() + from);
  };
  parallel_for_rows(num_chunks, kChunk, sum_chunk);
}

}  // namespace attend::kernels::cpu
