// Metadata of a step derived on the GPU equals the host's.
#include "attend/kernels/metadata/metadata.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "attend/kv/req_to_token_pool.h"
#include "attend/kv/storage/device_rows.h"
#include "attend/kv/storage/device_slot_map.h"
#include "attend/kv/window/swa_slots.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using CudaMetadata = NeedsGpu;

constexpr int kContextLen = 700;

// Request rows with pages in random order and lengths around page boundaries.
struct Rows {
  explicit Rows(int page_size) : table(40 * kContextLen) {
    std::mt19937 generator(static_cast<uint32_t>(page_size));
    for (size_t i = 0; i < table.size(); ++i)
      table[i] = static_cast<int32_t>(generator() % 5000) * page_size + static_cast<int32_t>(i) % page_size;
    for (int32_t r = 0; r < 37; ++r) {
      rows.push_back(39 - r);
      seqlen_kv.push_back(r == 5 ? 0 : static_cast<int32_t>(generator() % kContextLen));
    }
    seqlen_kv[1] = page_size;
    seqlen_kv[2] = page_size + 1;
    seqlen_kv[3] = kContextLen;
    slot_map.resize(static_cast<size_t>(5001 * page_size));
    for (int32_t& slot : slot_map) slot = static_cast<int32_t>(generator() % 5000) * page_size;
  }
  kernels::RequestRows requests() const {
    return {.table = table.data(), .stride = kContextLen, .rows = rows, .seqlen_kv = seqlen_kv};
  }
  std::vector<int32_t> table, rows, seqlen_kv, slot_map;
};

kernels::RequestRows upload(const Rows& rows, bool mapped, DeviceArrays& arrays) {
  kernels::RequestRows device = rows.requests();
  device.table = arrays.upload(std::span<const int32_t>(rows.table));
  device.rows = arrays.view(device.rows);
  device.seqlen_kv = arrays.view(device.seqlen_kv);
  device.slot_map = mapped ? arrays.upload(std::span<const int32_t>(rows.slot_map)) : nullptr;
  return device;
}

Tensor filled(size_t size) {
  const Tensor tensor = Tensor::empty({static_cast<int64_t>(size)}, DType::kI32);
  for (int32_t& value : tensor.span<int32_t>()) value = -7;
  return tensor;
}

std::vector<int32_t> values(const Tensor& tensor) {
  return {tensor.span<int32_t>().begin(), tensor.span<int32_t>().end()};
}

TEST_F(CudaMetadata, PageTablesAndCsrMatchTheHost) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  for (const int page_size : {1, 16, 64})
    for (const bool mapped : {false, true}) {
      SCOPED_TRACE(testing::Message() << "page size " << page_size << ", slot map " << mapped);
      const Rows rows(page_size);
      const int width = (kContextLen + page_size - 1) / page_size;
      const size_t num_entries = rows.rows.size() * static_cast<size_t>(width);
      kernels::RequestRows host = rows.requests();
      host.slot_map = mapped ? rows.slot_map.data() : nullptr;
      const Tensor table = filled(num_entries), indptr = filled(rows.rows.size() + 1),
                   indices = filled(num_entries);
      kernels::build_page_table(host, page_size, width, table.span<int32_t>());
      kernels::build_csr(host, page_size, indptr.span<int32_t>(), indices.span<int32_t>());

      DeviceArrays arrays(stream);
      const kernels::RequestRows device = upload(rows, mapped, arrays);
      const Tensor table_got = filled(num_entries), indptr_got = filled(rows.rows.size() + 1),
                   indices_got = filled(num_entries);
      const DeviceCopy table_copy(table_got, stream), indptr_copy(indptr_got, stream),
          indices_copy(indices_got, stream);
      kernels::build_page_table(device, page_size, width, table_copy.view().span<int32_t>(), stream);
      kernels::build_csr(device, page_size, indptr_copy.view().span<int32_t>(),
                         indices_copy.view().span<int32_t>(), stream);
      for (const DeviceCopy* copy : {&table_copy, &indptr_copy, &indices_copy}) copy->download(stream);
      cuda::synchronize(stream);
      EXPECT_EQ(values(table_got), values(table));
      EXPECT_EQ(values(indptr_got), values(indptr));
      EXPECT_EQ(values(indices_got), values(indices));
    }
}

TEST_F(CudaMetadata, RequestRowsFollowTheHost) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  ReqToTokenPool pool(3, 8);
  DeviceRows on_gpu(pool, kGpu);
  const RequestRow first = *pool.allocate(), second = *pool.allocate();
  const std::vector<TokenSlot> slots{TokenSlot(9), TokenSlot(4), TokenSlot(5), kNoSlot};
  pool.write(first, 6, View<const TokenSlot>(slots).first(1));
  pool.write(second, 0, View<const TokenSlot>(slots).subspan(1, 2));
  const std::vector<RequestRow> rows{first, second, kPaddingRow};
  const std::vector<int32_t> cu_seqlen_q{0, 1, 3, 4}, positions{6, 0, 1, 0};

  DeviceArrays arrays(stream);
  on_gpu.write_new_slots({.rows = raw(arrays.view(std::span<const RequestRow>(rows))),
                          .cu_seqlen_q = arrays.view(std::span<const int32_t>(cu_seqlen_q)),
                          .positions = arrays.view(std::span<const int32_t>(positions)),
                          .slots = raw(arrays.view(std::span<const TokenSlot>(slots)))},
                         stream);
  const Tensor got = Tensor::empty({4, 8}, DType::kI32);
  cuda::copy(on_gpu.table(), got, stream);
  cuda::synchronize(stream);
  for (int32_t row = 0; row < 4; ++row) {
    const auto expected = raw(pool.row(RequestRow(row)));
    EXPECT_EQ(values(Tensor(got.view()[row], got.storage())),
              std::vector<int32_t>(expected.begin(), expected.end()));
  }
}

TEST_F(CudaMetadata, SlotMapFollowsTheHost) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  ReqToTokenPool rows(1, 8);
  const DeviceRows rows_on_gpu(rows, kGpu);
  SwaSlots swa(4, 6, 4);
  const DeviceSlotMap map_on_gpu(swa, kGpu);
  const std::vector<RequestRow> request{*rows.allocate()};
  const std::vector<TokenSlot> slots{TokenSlot(18), TokenSlot(19), TokenSlot(8), kNoSlot};
  const std::vector<int32_t> cu_seqlen_q{0, 4}, positions{2, 3, 4, 0};
  std::vector<int32_t> swa_slots(slots.size());
  ASSERT_TRUE(swa.map(View<const TokenSlot>(slots).first(3)));
  swa.translate(slots, swa_slots);

  DeviceArrays arrays(stream);
  rows_on_gpu.write_new_slots({.rows = raw(arrays.view(std::span<const RequestRow>(request))),
                               .cu_seqlen_q = arrays.view(std::span<const int32_t>(cu_seqlen_q)),
                               .positions = arrays.view(std::span<const int32_t>(positions)),
                               .slots = raw(arrays.view(std::span<const TokenSlot>(slots))),
                               .swa_slots = arrays.view(std::span<const int32_t>(swa_slots)),
                               .slot_map = map_on_gpu.slot_map().as<int32_t>()},
                              stream);
  const Tensor got = Tensor::empty({24}, DType::kI32);
  cuda::copy(map_on_gpu.slot_map(), got, stream);
  cuda::synchronize(stream);
  std::vector<int32_t> expected(24);
  for (size_t i = 0; i < 3; ++i) expected[static_cast<size_t>(slots[i].value)] = swa_slots[i];
  EXPECT_EQ(values(got), expected);
}

}  // namespace
}  // namespace attend::testing_cuda
