// The arrays of a batch made on the GPU are what the host makes of the same lengths.
#include "attend/kernels/batch_arrays.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/kernels/cuda/device_copy.h"
#include "tests/kernels/cuda/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using CudaBatchArrays = NeedsGpu;

constexpr int32_t kReqs = 300, kWidth = 40, kPageSize = 8, kPadding = 5;

// What derive_batch writes, in one array: [cu_seqlen_q, seqlen_kv, first_key, new_slots].
std::vector<int32_t> derive(const kernels::BatchSource& source, int32_t num_new_tokens, Stream stream) {
  const auto reqs = static_cast<size_t>(source.num_reqs);
  const int64_t size = 3 * int64_t{source.num_reqs} + 2 + num_new_tokens;
  const bool on_host = stream.device.type == DeviceType::kCpu;
  const Tensor made =
      on_host ? Tensor::zeros({size}, DType::kI32) : cuda::zeros({size}, DType::kI32, stream.device);
  const View<int32_t> all(made.as<int32_t>(), static_cast<size_t>(size));
  kernels::derive_batch(source,
                        {.cu_seqlen_q = all.subspan(0, reqs + 1),
                         .seqlen_kv = all.subspan(reqs + 1, reqs),
                         .first_key = all.subspan(2 * reqs + 1, reqs + 1),
                         .new_slots = all.subspan(3 * reqs + 2)},
                        stream);
  std::vector<int32_t> values(static_cast<size_t>(size));
  const TensorView to = TensorView::contiguous(values.data(), DType::kI32, {size});
  if (on_host) return {all.begin(), all.end()};
  cuda::copy(made, to, stream);
  cuda::synchronize(stream);
  return values;
}

TEST_F(CudaBatchArrays, AreThoseOfTheHost) {
  std::mt19937 generator(3);
  const auto draw = [&](uint32_t below) { return static_cast<int32_t>(generator() % below); };
  std::vector<int32_t> cached, rows, cu_new{0}, cu_q{0}, table(kReqs * kWidth);
  for (int32_t r = 0; r < kReqs; ++r) {
    cached.push_back(draw(kWidth * kPageSize - 9));
    rows.push_back((r * 7) % kReqs);
    cu_new.push_back(cu_new.back() + (r % 3 == 0 ? 0 : draw(9)));
    cu_q.push_back(cu_q.back() + draw(4));
  }
  for (int32_t& page : table) page = draw(100000);

  cuda::OwnedStream stream(kGpu);
  DeviceArrays device(stream.get());
  const auto upload = [&](const std::vector<int32_t>& host) {
    return device.upload(std::span<const int32_t>(host));
  };
  const int32_t* const device_cached = upload(cached);
  for (const bool paged : {true, false})
    for (const bool ragged : {true, false}) {
      const int32_t num_new = (ragged ? cu_new.back() : 2 * kReqs) + kPadding;
      kernels::BatchSource source{.num_reqs = kReqs,
                                  .seqlen_q = {.all = 3},
                                  .seqlen_cached = {.each = cached.data()},
                                  .seqlen_new = {.all = 2},
                                  .places = {.page_size = kPageSize, .capacity = kWidth * kPageSize}};
      if (ragged) source.seqlen_q.cu = cu_q.data(), source.seqlen_new.cu = cu_new.data();
      if (paged)
        source.places.table = table.data(), source.places.table_stride = kWidth;
      else
        source.places.rows = rows.data(), source.places.row_spacing = kWidth * kPageSize + 3;
      const std::vector<int32_t> want = derive(source, num_new, Stream{});
      source.seqlen_cached.each = device_cached;
      if (ragged) source.seqlen_q.cu = upload(cu_q), source.seqlen_new.cu = upload(cu_new);
      if (paged)
        source.places.table = upload(table);
      else
        source.places.rows = upload(rows);
      EXPECT_EQ(derive(source, num_new, stream.get()), want)
          << (paged ? "pages" : "rows") << (ragged ? ", ragged" : "");
    }
}

TEST_F(CudaBatchArrays, KeysWithoutRoomHaveNoSlot) {
  cuda::OwnedStream stream(kGpu);
  const std::vector<int32_t> made = derive({.num_reqs = 2,
                                            .seqlen_cached = {.all = 7},
                                            .seqlen_new = {.all = 2},
                                            .places = {.row_spacing = 8, .capacity = 8}},
                                           4, stream.get());
  EXPECT_EQ(std::vector<int32_t>(made.end() - 4, made.end()), (std::vector<int32_t>{7, -1, 15, -1}));
}

}  // namespace
}  // namespace attend::testing_cuda
