// Tables of executors over the same rows and window slots.
#include "attend/kv/storage/device_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "attend/kv/change_log.h"
#include "attend/kv/storage/device_slot_map.h"
#include "attend/kv/window/swa_slots.h"
#include "attend/tensor/cuda.h"
#include "tests/support/token_slots.h"

namespace attend {
namespace {

using ::testing::ElementsAre;
using testing_support::make_slots;

TEST(ChangeLog, EveryCursorGetsEachChangeOnce) {
  ChangeLog<int> log(4);
  int64_t early = log.end(), late = log.end();
  std::vector<int> seen;
  const auto add = [&](int change) { seen.push_back(change); };
  log.add(1);
  log.add(2);
  EXPECT_TRUE(log.apply_since(early, add));
  EXPECT_THAT(seen, ElementsAre(1, 2));
  log.add(3);
  EXPECT_TRUE(log.apply_since(early, add));
  EXPECT_TRUE(log.apply_since(early, add));
  EXPECT_THAT(seen, ElementsAre(1, 2, 3));
  seen.clear();
  log.add(4);
  EXPECT_TRUE(log.apply_since(late, add));
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4));
}

TEST(ChangeLog, ReportsACursorThatIsTooOldAndMovesItToTheEnd) {
  ChangeLog<int> log(2);
  int64_t cursor = log.end();
  for (int change = 1; change <= 3; ++change) log.add(change);
  std::vector<int> seen;
  const auto add = [&](int change) { seen.push_back(change); };
  EXPECT_FALSE(log.apply_since(cursor, add));
  EXPECT_TRUE(seen.empty());
  log.add(4);
  EXPECT_TRUE(log.apply_since(cursor, add));
  EXPECT_THAT(seen, ElementsAre(4));
}

// Copies that take new tokens of every step from the step, as executors do, and the rest from the cursor.
RC_GTEST_PROP(SharedRows, CopiesWithDifferentCursorsContainAllAllocatedRows, ()) {
  const int max_reqs = *rc::gen::inRange(1, 5), context = *rc::gen::inRange(1, 12);
  ReqToTokenPool rows(max_reqs, context);
  struct Copy {
    Tensor table;
    int64_t cursor;
  };
  std::vector<Copy> copies;
  for (int i = 0; i < 2; ++i)
    copies.push_back({Tensor::zeros({max_reqs + 1, context}, DType::kI32), rows.shared_cursor()});
  std::vector<RequestRow> taken;
  std::vector<int> lengths(static_cast<size_t>(max_reqs) + 1);
  int32_t next_slot = 1;
  const int num_ops = *rc::gen::inRange(0, 60);
  for (int op = 0; op < num_ops; ++op) {
    if (taken.empty() || (rows.num_free() > 0 && *rc::gen::arbitrary<bool>())) {
      taken.push_back(*rows.allocate());
      lengths[static_cast<size_t>(taken.back().value)] = 0;
    }
    const size_t which = *rc::gen::inRange<size_t>(0, taken.size());
    const RequestRow row = taken[which];
    int& length = lengths[static_cast<size_t>(row.value)];
    std::vector<TokenSlot> slots;
    switch (*rc::gen::inRange(0, 4)) {
      case 0: {  // appends cached tokens or overwrites some of the row
        const int first = *rc::gen::inRange(0, length + 1), end = *rc::gen::inRange(first, context + 1);
        for (int i = first; i < end; ++i) slots.emplace_back(next_slot++);
        rows.write_shared(row, first, slots);
        length = std::max(length, end);
        break;
      }
      case 1: {  // new tokens, which reach the copies with their step
        const int end = *rc::gen::inRange(length, context + 1);
        for (int i = length; i < end; ++i) slots.emplace_back(next_slot++);
        rows.write(row, length, slots);
        for (const Copy& copy : copies)
          std::ranges::copy(raw(View<const TokenSlot>(slots)),
                            copy.table.as<int32_t>() + row.value * context + length);
        length = end;
        break;
      }
      case 2:
        rows.free(row);
        taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(which));
        break;
      default: {
        Copy& copy = copies[*rc::gen::inRange<size_t>(0, 2)];
        rows.apply_shared_writes(copy.cursor, [&](const RowRange& range) {
          const auto first = static_cast<size_t>(range.first), count = static_cast<size_t>(range.count);
          std::ranges::copy(raw(rows.row(range.row).subspan(first, count)),
                            copy.table.as<int32_t>() + range.row.value * context + range.first);
        });
        for (const RequestRow each : taken) {
          const auto count = static_cast<size_t>(lengths[static_cast<size_t>(each.value)]);
          RC_ASSERT(std::ranges::equal(raw(rows.row(each).first(count)),
                                       copy.table.view()[each.value].span<int32_t>().first(count)));
        }
      }
    }
  }
}

// On the CPU the tables are the host's own.
class DeviceTables : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().type == DeviceType::kCpu) return;
    if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
    gpu_stream_.emplace(GetParam());
    stream_ = gpu_stream_->get();
  }

  std::vector<int32_t> values(const TensorView& table) {
    const Tensor host = Tensor::empty({table.num_elements()}, DType::kI32);
    if (gpu_stream_) {
      cuda::copy(table.reshape({table.num_elements()}), host, stream_);
      cuda::synchronize(stream_);
      return {host.span<int32_t>().begin(), host.span<int32_t>().end()};
    }
    return {table.span<int32_t>().begin(), table.span<int32_t>().end()};
  }

  std::optional<cuda::OwnedStream> gpu_stream_;
  Stream stream_;
};

TEST_P(DeviceTables, RowsOfTwoExecutorsGetEverySharedSlot) {
  ReqToTokenPool rows(2, 6);
  DeviceRows first(rows, GetParam()), second(rows, GetParam());
  const RequestRow row = *rows.allocate(), other = *rows.allocate();
  rows.write_shared(row, 0, make_slots({4, 5, 6, 7}));
  first.upload_shared(stream_);
  EXPECT_EQ(values(first.table()), values(rows.table()));
  rows.write_shared(other, 2, make_slots({8, 9}));
  rows.write_shared(row, 2, make_slots({2, 3}));
  first.upload_shared(stream_);
  second.upload_shared(stream_);
  EXPECT_EQ(values(first.table()), values(rows.table()));
  EXPECT_EQ(values(second.table()), values(rows.table()));
}

TEST_P(DeviceTables, CopyAllRowsForAnExecutorWithAnOldCursor) {
  ReqToTokenPool rows(2, 6);
  DeviceRows copy(rows, GetParam());
  const RequestRow row = *rows.allocate();
  for (int32_t slot = 1; slot < 100; ++slot) rows.write_shared(row, slot % 6, make_slots({slot}));
  copy.upload_shared(stream_);
  EXPECT_EQ(values(copy.table()), values(rows.table()));
}

TEST_P(DeviceTables, RowsOfALaterExecutorAreThoseOfTheHost) {
  ReqToTokenPool rows(2, 6);
  rows.write(*rows.allocate(), 0, make_slots({4, 5, 6, 7}));
  const DeviceRows copy(rows, GetParam());
  EXPECT_EQ(values(copy.table()), values(rows.table()));
}

TEST_P(DeviceTables, SlotMapsOfTwoExecutorsGetEveryMovedPage) {
  constexpr int kPages = 1300;  // more than are uploaded page by page
  SwaSlots slots(2, 2 * kPages, kPages);
  for (int32_t page = 1; page < kPages; ++page) ASSERT_TRUE(slots.map(make_slots({2 * page})));
  DeviceSlotMap first(slots, GetParam()), second(slots, GetParam());
  for (int32_t page = 1; page < kPages; ++page) {
    slots.replace(PageId(page), PageId(kPages + page));
    if (page % 500 == 0) first.upload_moved(stream_);
  }
  for (DeviceSlotMap* map : {&first, &second}) {
    map->upload_moved(stream_);
    const std::vector<int32_t> got = values(map->slot_map()), expected = values(slots.slot_map());
    for (int32_t slot = 2 * (kPages + 1); slot < 4 * kPages; ++slot)
      ASSERT_EQ(got[static_cast<size_t>(slot)], expected[static_cast<size_t>(slot)]) << slot;
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceTables, testing::Values(Device{}));
INSTANTIATE_TEST_SUITE_P(Gpu, DeviceTables, testing::Values(Device{DeviceType::kCuda, 0}));

}  // namespace
}  // namespace attend
