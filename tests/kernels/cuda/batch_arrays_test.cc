// Batch arrays derived on the GPU equal those that the host derives from the same lengths.
#include "attend/kernels/kv_store/batch_arrays.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using CudaBatchArrays = NeedsGpu;

constexpr int32_t kReqs = 300, kWidth = 40, kPageSize = 8, kPadding = 5;

// Outputs of derive_batch in one array: [cu_seqlen_q, seqlen_kv, first_key, new_slots, key_slots].
std::vector<int32_t> derive(const kernels::BatchSource& source, int32_t num_new_tokens, Stream stream) {
  const auto reqs = static_cast<size_t>(kernels::num_batch_reqs(source)),
             num_new = static_cast<size_t>(num_new_tokens);
  const int64_t num_key_slots =
      source.locations.table == nullptr ? 0 : int64_t{source.num_reqs} * source.locations.capacity;
  const int64_t size = 3 * static_cast<int64_t>(reqs) + 2 + num_new_tokens + num_key_slots;
  const bool on_host = stream.device.type == DeviceType::kCpu;
  const Tensor made = Tensor::zeros({size}, DType::kI32, stream.device);
  const View<int32_t> all(made.as<int32_t>(), static_cast<size_t>(size));
  kernels::derive_batch(source,
                        {.cu_seqlen_q = all.subspan(0, reqs + 1),
                         .seqlen_kv = all.subspan(reqs + 1, reqs),
                         .first_key = all.subspan(2 * reqs + 1, reqs + 1),
                         .new_slots = all.subspan(3 * reqs + 2, num_new),
                         .key_slots = all.subspan(3 * reqs + 2 + num_new)},
                        stream);
  std::vector<int32_t> values(static_cast<size_t>(size));
  const TensorView to = TensorView::contiguous(values.data(), DType::kI32, {size});
  if (on_host) return {all.begin(), all.end()};
  cuda::copy(made, to, stream);
  cuda::synchronize(stream);
  return values;
}

TEST_F(CudaBatchArrays, MatchTheHost) {
  std::mt19937 generator(3);
  const auto draw = [&](uint32_t below) { return static_cast<int32_t>(generator() % below); };
  std::vector<int32_t> cached, rows, leftpad, used, cu_new{0}, cu_q{0}, table(kReqs * kWidth);
  for (int32_t r = 0; r < kReqs; ++r) {
    cached.push_back(draw(kWidth * kPageSize - 9));
    rows.push_back((r * 7) % kReqs);
    cu_new.push_back(cu_new.back() + (r % 3 == 0 ? 0 : draw(9)));
    cu_q.push_back(cu_q.back() + draw(4));
    leftpad.push_back(r % 4 == 0   ? 0
                      : r % 4 == 1 ? cached.back()
                                   : draw(static_cast<uint32_t>(cached.back()) + 1));
    used.push_back(std::min(draw(4), cu_q.back() - cu_q[static_cast<size_t>(r)]));
  }
  for (int32_t& page : table) page = draw(100000);

  cuda::OwnedStream stream(kGpu);
  DeviceArrays device(stream.get());
  const auto upload = [&](const std::vector<int32_t>& host) {
    return device.upload(std::span<const int32_t>(host));
  };
  const int32_t* const device_cached = upload(cached);
  const int32_t *const device_leftpad = upload(leftpad), *const device_used = upload(used);
  for (const bool paged : {true, false})
    for (const int how : {0, 1, 2, 3}) {
      const bool ragged = how % 2 == 0, plain = how < 2;
      const int32_t num_new = (ragged ? cu_new.back() : 2 * kReqs) + kPadding;
      kernels::BatchSource source{
          .num_reqs = kReqs,
          .seqlen_q = {.uniform = 3},
          .seqlen_cached = {.per_request = cached.data()},
          .seqlen_new = {.uniform = 2},
          .locations = {
              .page_size = kPageSize, .page_spacing = kPageSize + 3, .capacity = kWidth * kPageSize}};
      if (!plain) source.leftpad = leftpad.data();
      if (!plain && ragged) source.seqused_q = used.data();
      if (ragged) source.seqlen_q.cu = cu_q.data(), source.seqlen_new.cu = cu_new.data();
      if (paged)
        source.locations.table = table.data(), source.locations.table_stride = kWidth;
      else
        source.locations.rows = rows.data(), source.locations.row_spacing = kWidth * kPageSize + 3;
      const std::vector<int32_t> want = derive(source, num_new, Stream{});
      source.seqlen_cached.per_request = device_cached;
      if (!plain) source.leftpad = device_leftpad;
      if (!plain && ragged) source.seqused_q = device_used;
      if (ragged) source.seqlen_q.cu = upload(cu_q), source.seqlen_new.cu = upload(cu_new);
      if (paged)
        source.locations.table = upload(table);
      else
        source.locations.rows = upload(rows);
      EXPECT_EQ(derive(source, num_new, stream.get()), want)
          << (paged ? "pages" : "rows") << (ragged ? ", ragged" : "") << (plain ? "" : ", leftpad");
    }
}

TEST_F(CudaBatchArrays, KeysBeyondTheCacheHaveNoSlot) {
  cuda::OwnedStream stream(kGpu);
  const std::vector<int32_t> made = derive({.num_reqs = 2,
                                            .seqlen_cached = {.uniform = 7},
                                            .seqlen_new = {.uniform = 2},
                                            .locations = {.row_spacing = 8, .capacity = 8}},
                                           4, stream.get());
  EXPECT_EQ(std::vector<int32_t>(made.end() - 4, made.end()), (std::vector<int32_t>{7, -1, 15, -1}));
}

// Three new keys of one request, none of another, one of a third, together with the batch's lengths.
TEST_F(CudaBatchArrays, KeysAreAppendedAtTheSlotsOfTheHost) {
  constexpr int64_t kPages = 6, kHeads = 2, kNewTokens = 5;
  const std::vector<int32_t> cached{2, 7, 0}, cu_new{0, 3, 3, 4}, table{3, 1, 5, 2, 4, 0};
  const auto filled = [](std::initializer_list<int64_t> shape, DType dtype, float first) {
    const Tensor tensor = Tensor::zeros(shape, dtype);
    visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
      for (T& value : tensor.span<T>()) value = T(first += 0.25f);
    });
    return tensor;
  };
  const Tensor k = filled({kNewTokens, kHeads, 40}, DType::kBF16, 0.0f);
  const Tensor v = filled({kNewTokens, kHeads, 24}, DType::kBF16, -30.0f);
  const auto caches = [&] {
    return std::pair(filled({kPages, kPageSize, kHeads, 40}, DType::kF8E4M3, 1.0f),
                     filled({kPages, kPageSize, kHeads, 24}, DType::kF8E4M3, 2.0f));
  };
  const auto source = [](const int32_t* lengths, const int32_t* cu, const int32_t* pages) {
    return kernels::BatchSource{
        .num_reqs = 3,
        .seqlen_q = {.uniform = 1},
        .seqlen_cached = {.per_request = lengths},
        .seqlen_new = {.cu = cu},
        .locations = {.table = pages, .table_stride = 2, .page_size = kPageSize, .capacity = 2 * kPageSize}};
  };
  std::vector<int32_t> want_lengths(3), got_lengths(3), slots(kNewTokens);
  const auto [want_k, want_v] = caches();
  Stream host;
  kernels::append_keys(
      source(cached.data(), cu_new.data(), table.data()), {.seqlen_kv = want_lengths, .new_slots = slots},
      {.k = k, .v = v, .to = {.k = want_k, .v = want_v, .slots = slots, .k_scale = 0.5f}}, host);

  const auto [got_k, got_v] = caches();
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  DeviceArrays arrays(stream);
  const auto upload = [&](const std::vector<int32_t>& array) {
    return arrays.upload(std::span<const int32_t>(array));
  };
  const TensorView lengths = TensorView::contiguous(got_lengths.data(), DType::kI32, {3});
  const DeviceCopy device_k(k, stream), device_v(v, stream), device_lengths(lengths, stream),
      k_cache(got_k, stream), v_cache(got_v, stream);
  const Tensor new_slots = cuda::zeros({kNewTokens}, DType::kI32, kGpu);
  kernels::append_keys(source(upload(cached), upload(cu_new), upload(table)),
                       {.seqlen_kv = device_lengths.view().span<int32_t>(),
                        .new_slots = {new_slots.as<int32_t>(), kNewTokens}},
                       {.k = device_k.view(),
                        .v = device_v.view(),
                        .to = {.k = k_cache.view(),
                               .v = v_cache.view(),
                               .slots = {new_slots.as<int32_t>(), kNewTokens},
                               .k_scale = 0.5f}},
                       stream);
  for (const DeviceCopy* copy : {&device_lengths, &k_cache, &v_cache}) copy->download(stream);
  cuda::synchronize(stream);
  EXPECT_EQ(got_lengths, want_lengths);
  EXPECT_EQ(std::memcmp(got_k.view().data, want_k.view().data, got_k.view().num_bytes()), 0);
  EXPECT_EQ(std::memcmp(got_v.view().data, want_v.view().data, got_v.view().num_bytes()), 0);
}

}  // namespace
}  // namespace attend::testing_cuda
