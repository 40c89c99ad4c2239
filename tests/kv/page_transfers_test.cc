// Copies between a pool and host memory give the bytes of copies in the order of their calls, while the model
// writes the pool.
#include "attend/kv/tier/page_transfers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "attend/tensor/cuda.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using testing_support::kGpu;
using Direction = PageTransfers::Direction;

constexpr int kNumPages = 6, kNumCells = 12;
constexpr int64_t kPartBytes[] = {400'000, 100'000};  // slow enough that copies are late without an event
constexpr int64_t kPageBytes = kPartBytes[0] + kPartBytes[1];

class PageCopies : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam() == kGpu && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
    if (GetParam() == kGpu) owned_.emplace(kGpu);
    model_ = owned_ ? owned_->get() : Stream{};
    for (const int64_t bytes : kPartBytes) {
      const auto shape = {int64_t{kNumPages}, bytes};
      pool_.push_back(owned_ ? cuda::zeros(shape, DType::kU8, kGpu) : Tensor::zeros(shape, DType::kU8));
      bytes_[0].add(pool_.back());
      values_.push_back(owned_ ? cuda::zeros({256, bytes}, DType::kU8, kGpu)
                               : Tensor::zeros({256, bytes}, DType::kU8));
      for (int value = 0; value < 256; ++value) {
        const std::vector<uint8_t> all(static_cast<size_t>(bytes), static_cast<uint8_t>(value));
        copy(TensorView::contiguous(const_cast<uint8_t*>(all.data()), DType::kU8, {bytes}),
             values_.back().view()[value]);
        if (owned_) cuda::synchronize(model_);
      }
    }
    const auto size = {int64_t{kNumCells}, kPageBytes};
    cells_ = owned_ ? cuda::empty_pinned(size, DType::kU8, kGpu) : Tensor::empty(size, DType::kU8);
    std::memset(cells_.view().data, 0, cells_.view().num_bytes());
  }

  void copy(const TensorView& from, const TensorView& to) {
    if (owned_)
      cuda::copy(from, to, model_);
    else
      std::memcpy(to.data, from.data, from.num_bytes());
  }
  // A step of the model.
  void write_page(int page, int value) {
    for (size_t p = 0; p < pool_.size(); ++p) copy(values_[p].view()[value], pool_[p].view()[page]);
  }
  std::byte* cell(int i) const { return static_cast<std::byte*>(cells_.view()[i].data); }
  void expect_value(const TensorView& view, int value, const char* what) {
    std::vector<uint8_t> bytes(view.num_bytes());
    const TensorView to = TensorView::contiguous(bytes.data(), DType::kU8, {std::ssize(bytes)});
    if (view.device == Device{})
      std::memcpy(bytes.data(), view.data, bytes.size());
    else
      copy(view, to);
    if (owned_) cuda::synchronize(model_);
    ASSERT_EQ(bytes, std::vector<uint8_t>(bytes.size(), static_cast<uint8_t>(value))) << what;
  }

  std::optional<cuda::OwnedStream> owned_;
  Stream model_;
  std::vector<Tensor> pool_;
  std::vector<Tensor> values_;  // by part: [256 values, bytes]
  Tensor cells_;
  CacheBytes bytes_;
};

TEST_P(PageCopies, HaveTheResultOfTheirOrder) {
  std::mt19937 generator(3);
  const auto below = [&](int end) { return static_cast<int>(generator() % static_cast<unsigned>(end)); };
  CopyQueue::set_max_delay(std::chrono::microseconds(500));
  PageTransfers transfers(bytes_, model_);
  std::vector<int> page_values(kNumPages, 0), cell_values(kNumCells, 0);
  struct Use {
    Direction direction = Direction::kToHost;
    int64_t batch = 0;
  };
  std::vector<Use> uses(kNumCells);
  const auto is_busy = [&](int i) {
    const Use& use = uses[static_cast<size_t>(i)];
    return use.batch > transfers.num_ended(use.direction);
  };
  for (int round = 0; round < 600; ++round) {
    const int page = below(kNumPages), i = below(kNumCells);
    const auto p = static_cast<size_t>(page), c = static_cast<size_t>(i);
    switch (below(4)) {
      case 0: {  // the storage of a page is reused
        transfers.reuse(PageDataKind::kTokens, page);
        transfers.start();
        page_values[p] = 1 + below(255);
        write_page(page, page_values[p]);
        break;
      }
      case 1: {
        if (is_busy(i)) break;
        uses[c] = {Direction::kToHost,
                   transfers.add(Direction::kToHost, PageDataKind::kTokens, page, cell(i))};
        cell_values[c] = page_values[p];
        break;
      }
      case 2: {  // also of a cell that a copy still fills
        const bool is_filled = is_busy(i) && uses[c].direction == Direction::kToHost;
        if (is_busy(i) && !is_filled) break;
        const int64_t after = is_filled ? uses[c].batch : 0;
        uses[c] = {Direction::kToCache,
                   transfers.add(Direction::kToCache, PageDataKind::kTokens, page, cell(i), after)};
        page_values[p] = cell_values[c];
        break;
      }
      default:
        if (below(4) == 0) transfers.start();
        if (below(20) == 0) transfers.drain();
    }
  }
  transfers.drain();
  CopyQueue::set_max_delay({});
  for (int page = 0; page < kNumPages; ++page) {
    EXPECT_EQ(transfers.batch_of(Direction::kToHost, PageDataKind::kTokens, page), 0);
    EXPECT_EQ(transfers.batch_of(Direction::kToCache, PageDataKind::kTokens, page), 0);
    for (const Tensor& part : pool_)
      expect_value(part.view()[page], page_values[static_cast<size_t>(page)], "page");
  }
  for (int i = 0; i < kNumCells; ++i)
    expect_value(cells_.view()[i], cell_values[static_cast<size_t>(i)], "cell");
}

INSTANTIATE_TEST_SUITE_P(, PageCopies, testing::Values(Device{}, kGpu),
                         [](const auto& test) { return test.param == kGpu ? "gpu" : "cpu"; });

}  // namespace
}  // namespace attend
