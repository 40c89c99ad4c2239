#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/norm_rope/rope.h"
#include "tests/kernels/conformance/cases/random.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::Random;
using CudaStore = NeedsGpu;
using CudaMerge = NeedsGpu;

Tensor normal(std::initializer_list<int64_t> shape, DType dtype, uint64_t seed, float deviation = 1.0f) {
  Tensor tensor = Tensor::empty(shape, dtype);
  Random random(seed, 0);
  visit_float_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (T& value : tensor.span<T>()) value = static_cast<T>(deviation * random.normal());
  });
  return tensor;
}

void expect_same_bytes(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(std::memcmp(a.view().data, b.view().data, a.view().num_bytes()), 0);
}

void expect_near(const Tensor& a, const Tensor& b, float tolerance) {
  const auto left = a.span<float>(), right = b.span<float>();
  for (size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i]) continue;
    ASSERT_NEAR(left[i], right[i], tolerance) << "element " << i;
  }
}

TEST_F(CudaStore, WritesTheBitsOfTheReference) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  const std::vector<int32_t> slots{5, -1, 31, 0},
      slot_map{7,  1,  2,  3,  4,  9,  6,  0,  8,  5,  10, 11, 12, 13, 14, 15,
               16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 30};
  for (DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (DType to : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2}) {
      for (const bool mapped : {false, true}) {
        SCOPED_TRACE(testing::Message() << from << " to " << to << ", slot map " << mapped);
        const Tensor k = normal({4, 3, 40}, from, 1, 60.0f), v = normal({4, 3, 24}, from, 2, 60.0f);
        const Tensor k_cache = Tensor::zeros({8, 4, 3, 40}, to), v_cache = Tensor::zeros({8, 4, 3, 24}, to);
        const Tensor k_got = Tensor::zeros({8, 4, 3, 40}, to), v_got = Tensor::zeros({8, 4, 3, 24}, to);
        kernels::StoreKvArgs args{.k = k,
                                  .v = v,
                                  .to = {.k = k_cache,
                                         .v = v_cache,
                                         .slots = slots,
                                         .slot_map = mapped ? slot_map.data() : nullptr,
                                         .k_scale = 0.7f,
                                         .v_scale = 1.0f}};
        kernels::reference::store_kv(args);
        DeviceArrays arrays(stream);
        const DeviceCopy k_in(k, stream), v_in(v, stream), k_out(k_got, stream), v_out(v_got, stream);
        args.k = k_in.view();
        args.v = v_in.view();
        args.to.k = k_out.view();
        args.to.v = v_out.view();
        args.to.slots = arrays.view(args.to.slots);
        args.to.slot_map = mapped ? arrays.upload(std::span<const int32_t>(slot_map)) : nullptr;
        kernels::store_kv(args, stream);
        k_out.download(stream);
        v_out.download(stream);
        cuda::synchronize(stream);
        expect_same_bytes(k_got, k_cache);
        expect_same_bytes(v_got, v_cache);
      }
    }
  }
}

TEST_F(CudaStore, FusedWithNormAndRopeWritesTheBitsOfThreeLaunches) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  constexpr int64_t kTokens = 5, kQHeads = 4, kKvHeads = 2, kHeadDim = 48, kHalf = 16;
  const std::vector<int32_t> slots{5, -1, 31, 8, 9}, positions{3, 0, 7, 1, 2};
  const Tensor cos = normal({8, kHalf}, DType::kF32, 1), sin = normal({8, kHalf}, DType::kF32, 2);
  const Tensor norm = normal({kHeadDim}, DType::kBF16, 3);
  for (DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (DType to : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
      for (const bool normalized : {false, true}) {
        SCOPED_TRACE(testing::Message() << from << " to " << to << ", normalized " << normalized);
        const Tensor q = normal({kTokens, kQHeads, kHeadDim}, from, 4),
                     k = normal({kTokens, kKvHeads, kHeadDim}, from, 5),
                     v = normal({kTokens, kKvHeads, kHeadDim}, from, 6);
        std::vector<Tensor> results;  // q, K and V of the fused launch, then of the three launches
        for (const bool fused : {true, false}) {
          DeviceArrays arrays(stream);
          const Tensor q_got = Tensor::empty({kTokens, kQHeads, kHeadDim}, from);
          std::memcpy(q_got.view().data, q.view().data, q.view().num_bytes());
          const Tensor k_got = Tensor::zeros({8, 4, kKvHeads, kHeadDim}, to),
                       v_got = Tensor::zeros({8, 4, kKvHeads, kHeadDim}, to);
          const DeviceCopy q_copy(q_got, stream), k_in(k, stream), v_in(v, stream), k_out(k_got, stream),
              v_out(v_got, stream), cos_in(cos, stream), sin_in(sin, stream), norm_in(norm, stream);
          const TensorView weight = normalized ? norm_in.view() : TensorView();
          const kernels::NormRopeArgs rope{.q = q_copy.view(),
                                           .k = k_in.view(),
                                           .q_norm = weight,
                                           .k_norm = weight,
                                           .positions = arrays.view(std::span<const int32_t>(positions)),
                                           .cos = cos_in.view(),
                                           .sin = sin_in.view()};
          const kernels::StoreKvArgs store{.k = k_in.view(),
                                           .v = v_in.view(),
                                           .to = {.k = k_out.view(),
                                                  .v = v_out.view(),
                                                  .slots = arrays.view(std::span<const int32_t>(slots)),
                                                  .k_scale = 0.7f,
                                                  .v_scale = 1.5f}};
          if (fused) {
            kernels::norm_rope_store(rope, store, stream);
          } else {
            kernels::norm_rope(rope, stream);
            kernels::store_kv(store, stream);
          }
          for (const DeviceCopy* copy : {&q_copy, &k_out, &v_out}) copy->download(stream);
          cuda::synchronize(stream);
          for (const Tensor& result : {q_got, k_got, v_got}) results.push_back(result);
        }
        for (size_t i = 0; i < 3; ++i) expect_same_bytes(results[i], results[i + 3]);
      }
    }
  }
}

// Gemma 4: heads of v are normalized without weights, and may be those of k. The bits are those of a norm
// with weights of 1 and angles of 0.
TEST_F(CudaStore, NormalizesHeadsOfVWithoutWeights) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  constexpr int64_t kTokens = 5, kQHeads = 4, kKvHeads = 2;
  const std::vector<int32_t> slots{5, -1, 31, 8, 9}, positions{3, 0, 7, 1, 2};
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t head_dim : {int64_t{32}, int64_t{256}, int64_t{512}})
      for (const bool k_as_v : {false, true}) {
        SCOPED_TRACE(testing::Message() << dtype << ", heads of " << head_dim << ", k as v " << k_as_v);
        const Tensor cos = normal({8, head_dim / 2}, DType::kF32, 1),
                     sin = normal({8, head_dim / 2}, DType::kF32, 2), norm = normal({head_dim}, dtype, 3);
        const Tensor q = normal({kTokens, kQHeads, head_dim}, dtype, 4),
                     k = normal({kTokens, kKvHeads, head_dim}, dtype, 5),
                     v = k_as_v ? k : normal({kTokens, kKvHeads, head_dim}, dtype, 6);
        Tensor ones = Tensor::zeros({head_dim}, dtype),
               no_sin = Tensor::zeros({8, head_dim / 2}, DType::kF32),
               unit_cos = Tensor::zeros({8, head_dim / 2}, DType::kF32);
        visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) { std::ranges::fill(ones.span<T>(), T(1.0f)); });
        std::ranges::fill(unit_cos.span<float>(), 1.0f);
        std::vector<Tensor> results;
        for (const bool fused : {true, false}) {
          DeviceArrays arrays(stream);
          const Tensor k_got = Tensor::zeros({8, 4, kKvHeads, head_dim}, dtype),
                       v_got = Tensor::zeros({8, 4, kKvHeads, head_dim}, dtype);
          const DeviceCopy q_in(q, stream), k_in(k, stream), v_in(v, stream), k_out(k_got, stream),
              v_out(v_got, stream), cos_in(cos, stream), sin_in(sin, stream), norm_in(norm, stream),
              ones_in(ones, stream), no_sin_in(no_sin, stream), unit_cos_in(unit_cos, stream);
          const auto indices = arrays.view(std::span<const int32_t>(positions));
          const kernels::NormRopeArgs rope{.q = q_in.view(),
                                           .k = k_in.view(),
                                           .q_norm = norm_in.view(),
                                           .k_norm = norm_in.view(),
                                           .positions = indices,
                                           .cos = cos_in.view(),
                                           .sin = sin_in.view(),
                                           .norm_v = fused};
          kernels::StoreKvArgs store{.k = k_in.view(),
                                     .v = fused && k_as_v ? k_in.view() : v_in.view(),
                                     .to = {.k = k_out.view(),
                                            .v = v_out.view(),
                                            .slots = arrays.view(std::span<const int32_t>(slots))}};
          if (!fused)
            kernels::norm_rope({.q = v_in.view(),
                                .q_norm = ones_in.view(),
                                .positions = indices,
                                .cos = unit_cos_in.view(),
                                .sin = no_sin_in.view()},
                               stream);
          kernels::norm_rope_store(rope, store, stream);
          for (const DeviceCopy* copy : {&k_out, &v_out}) copy->download(stream);
          cuda::synchronize(stream);
          for (const Tensor& result : {k_got, v_got}) results.push_back(result);
        }
        for (size_t i = 0; i < 2; ++i) expect_same_bytes(results[i], results[i + 2]);
      }
}

TEST_F(CudaStore, WritesTheMlaRowsOfTheReference) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  const std::vector<int32_t> slots{3, -1, 14};
  for (const DType from : {DType::kBF16, DType::kF16, DType::kF32})
    for (const auto& [to, width] : {std::pair<DType, int64_t>(DType::kF8E4M3, 576), {DType::kU8, 656}}) {
      SCOPED_TRACE(testing::Message() << from << " to " << to);
      // Groups of a scaled row have very different magnitudes.
      const Tensor latent = normal({3, 512}, from, 3), rope = normal({3, 64}, from, 4);
      visit_float_dtype(from, [&]<class T>(TypeTag<T>) {
        const auto numbers = latent.span<T>();
        for (size_t i = 0; i < numbers.size(); ++i)
          numbers[i] = static_cast<T>(static_cast<float>(numbers[i]) *
                                      std::pow(30.0f, static_cast<float>(i / 128 % 4) - 2.0f));
      });
      const Tensor cache = Tensor::zeros({4, 4, width}, to), got = Tensor::zeros({4, 4, width}, to);
      kernels::StoreMlaArgs args{
          .latent = latent, .rope = rope, .to = {.k = cache, .slots = slots, .k_scale = 0.3f}};
      kernels::reference::store_mla(args);
      DeviceArrays arrays(stream);
      const DeviceCopy latent_in(latent, stream), rope_in(rope, stream), out(got, stream);
      args.latent = latent_in.view();
      args.rope = rope_in.view();
      args.to.k = out.view();
      args.to.slots = arrays.view(args.to.slots);
      kernels::store_mla(args, stream);
      out.download(stream);
      cuda::synchronize(stream);
      expect_same_bytes(got, cache);
    }
}

TEST_F(CudaMerge, MatchesTheReferenceAndKeepsEmptyRowsEmpty) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  const Tensor out_a = normal({6, 4, 72}, DType::kF32, 5), out_b = normal({6, 4, 72}, DType::kF32, 6);
  const Tensor lse_a = normal({6, 4}, DType::kF32, 7, 3.0f), lse_b = normal({6, 4}, DType::kF32, 8, 3.0f);
  for (int head = 0; head < 4; ++head) {
    lse_a.span<float>()[static_cast<size_t>(head)] = kernels::kEmptyLse;
    lse_b.span<float>()[static_cast<size_t>(head)] =
        -kernels::kEmptyLse;  // FlashAttention's LSE of an empty row
    out_a.span<float>()[static_cast<size_t>(head)] = NAN;
    lse_a.span<float>()[static_cast<size_t>(4 + head)] = kernels::kEmptyLse;
  }
  const Tensor want = Tensor::zeros({6, 4, 72}, DType::kF32), want_lse = Tensor::zeros({6, 4}, DType::kF32);
  const Tensor got = Tensor::zeros({6, 4, 72}, DType::kF32), got_lse = Tensor::zeros({6, 4}, DType::kF32);
  kernels::MergeArgs args{out_a, out_b, lse_a, lse_b, want, want_lse};
  kernels::reference::merge(args);
  const DeviceCopy a(out_a, stream), b(out_b, stream), la(lse_a, stream), lb(lse_b, stream), o(got, stream),
      l(got_lse, stream);
  kernels::merge({a.view(), b.view(), la.view(), lb.view(), o.view(), l.view()}, stream);
  o.download(stream);
  l.download(stream);
  cuda::synchronize(stream);
  expect_near(got, want, 1e-5f);
  expect_near(got_lse, want_lse, 1e-5f);
}

TEST_F(CudaMerge, MergesSplitsLikeTheReference) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  const Tensor parts = normal({5, 6, 4, 64}, DType::kF32, 9), lses = normal({5, 6, 4}, DType::kF32, 10, 4.0f);
  for (size_t i = 0; i < 5; ++i) lses.span<float>()[i * 24] = kernels::kEmptyLse;
  const Tensor sinks = normal({4}, DType::kF32, 11, 2.0f);
  const Tensor want = Tensor::zeros({6, 4, 64}, DType::kF32), want_lse = Tensor::zeros({6, 4}, DType::kF32);
  const Tensor got = Tensor::zeros({6, 4, 64}, DType::kF32), got_lse = Tensor::zeros({6, 4}, DType::kF32);
  kernels::MergeSplitsArgs args{parts, lses, sinks.span<float>(), want, want_lse};
  kernels::reference::merge_splits(args);
  DeviceArrays arrays(stream);
  const DeviceCopy p(parts, stream), pl(lses, stream), o(got, stream), l(got_lse, stream);
  args = {p.view(), pl.view(), arrays.view(args.sinks), o.view(), l.view()};
  kernels::merge_splits(args, stream);
  o.download(stream);
  l.download(stream);
  cuda::synchronize(stream);
  expect_near(got, want, 1e-5f);
  expect_near(got_lse, want_lse, 1e-5f);
}

}  // namespace
}  // namespace attend::testing_cuda
