// Merge and store of every instruction set against the reference, and what merging must leave as it is.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "attend/kernels/cpu/merge.h"
#include "attend/kernels/cpu/store.h"

namespace attend::kernels {
namespace {

Tensor random_tensor(std::initializer_list<int64_t> shape, DType dtype, std::mt19937& random) {
  Tensor made = Tensor::empty(shape, dtype);
  visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
    for (T& value : made.span<T>()) value = T(std::normal_distribution<float>(0, 2)(random));
  });
  return made;
}

Tensor lse_tensor(std::initializer_list<int64_t> shape, std::mt19937& random) {
  Tensor lse = random_tensor(shape, DType::kF32, random);
  const View<float> values = lse.span<float>();
  for (size_t i = 0; i < values.size(); i += 3) values[i] = kEmptyLse;
  for (size_t i = 1; i < values.size(); i += 7) values[i] = INFINITY;  // how FlashAttention says empty
  return lse;
}

std::vector<float> floats_of(const TensorView& view) {
  std::vector<float> values;
  visit_float_dtype(view.dtype, [&]<class T>(TypeTag<T>) {
    for (T value : view.span<T>()) values.push_back(static_cast<float>(value));
  });
  return values;
}

void expect_near(const Tensor& ours, const Tensor& expected, double tolerance) {
  const std::vector<float> a = floats_of(ours), b = floats_of(expected);
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    ASSERT_LE(std::abs(a[i] - b[i]), tolerance * (1 + std::abs(b[i]))) << "element " << i;
  }
}

double tolerance_of(DType dtype) {
  return dtype == DType::kF32 ? 1e-6 : dtype == DType::kF16 ? 1.0 / 1024 : 1.0 / 128;
}

TEST(CpuMerge, AgreesWithTheReferenceForEveryDtype) {
  std::mt19937 random(5);
  for (cpu::Isa isa : cpu::available_isas())
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
      for (int64_t dim : {8, 72, 300}) {
        const Tensor a = random_tensor({5, 3, dim}, dtype, random),
                     b = random_tensor({5, 3, dim}, dtype, random);
        const Tensor lse_a = lse_tensor({5, 3}, random), lse_b = lse_tensor({5, 3}, random);
        const Tensor out = Tensor::empty({5, 3, dim}, dtype), lse = Tensor::empty({5, 3}, DType::kF32);
        const Tensor expected = Tensor::empty({5, 3, dim}, dtype),
                     expected_lse = Tensor::empty({5, 3}, DType::kF32);
        cpu::merge({.out_a = a, .out_b = b, .lse_a = lse_a, .lse_b = lse_b, .out = out, .lse = lse}, isa);
        reference::merge(
            {.out_a = a, .out_b = b, .lse_a = lse_a, .lse_b = lse_b, .out = expected, .lse = expected_lse});
        expect_near(out, expected, tolerance_of(dtype));
        expect_near(lse, expected_lse, 1e-6);
      }
}

TEST(CpuMerge, WorksInPlace) {
  std::mt19937 random(6);
  const Tensor a = random_tensor({5, 3, 64}, DType::kF32, random),
               b = random_tensor({5, 3, 64}, DType::kF32, random);
  const Tensor lse_a = lse_tensor({5, 3}, random), lse_b = lse_tensor({5, 3}, random);
  const Tensor expected = Tensor::empty({5, 3, 64}, DType::kF32),
               expected_lse = Tensor::empty({5, 3}, DType::kF32);
  reference::merge(
      {.out_a = a, .out_b = b, .lse_a = lse_a, .lse_b = lse_b, .out = expected, .lse = expected_lse});
  cpu::merge({.out_a = a, .out_b = b, .lse_a = lse_a, .lse_b = lse_b, .out = a, .lse = lse_a},
             cpu::detect_isa());
  expect_near(a, expected, 1e-6);
  expect_near(lse_a, expected_lse, 1e-6);
}

TEST(CpuMerge, ChangesNoBitWhenOnePartIsEmptyAndReadsNothingOfIt) {
  std::mt19937 random(8);
  for (cpu::Isa isa : cpu::available_isas()) {
    const Tensor a = random_tensor({1, 4, 64}, DType::kF32, random),
                 out = Tensor::empty({1, 4, 64}, DType::kF32);
    const Tensor nothing = Tensor::empty({1, 4, 64}, DType::kF32);
    for (float& value : nothing.span<float>()) value = NAN;
    const Tensor lse = random_tensor({1, 4}, DType::kF32, random),
                 merged = Tensor::empty({1, 4}, DType::kF32);
    const Tensor empty = Tensor::empty({1, 4}, DType::kF32);
    for (float& value : empty.span<float>()) value = kEmptyLse;
    const auto expect_a = [&] {
      EXPECT_EQ(0, std::memcmp(out.view().data, a.view().data, a.view().num_bytes())) << isa;
      EXPECT_EQ(0, std::memcmp(merged.view().data, lse.view().data, lse.view().num_bytes())) << isa;
    };
    cpu::merge({.out_a = a, .out_b = nothing, .lse_a = lse, .lse_b = empty, .out = out, .lse = merged}, isa);
    expect_a();
    cpu::merge({.out_a = nothing, .out_b = a, .lse_a = empty, .lse_b = lse, .out = out, .lse = merged}, isa);
    expect_a();
  }
}

TEST(CpuMergeSplits, AgreesWithTheReferenceWithAndWithoutSinks) {
  std::mt19937 random(9);
  for (cpu::Isa isa : cpu::available_isas())
    for (DType dtype : {DType::kF32, DType::kBF16})
      for (bool has_sinks : {false, true}) {
        const Tensor parts = random_tensor({4, 60, 3, 520}, DType::kF32, random);
        const Tensor part_lse = lse_tensor({4, 60, 3}, random);
        const std::vector<float> sinks = {-1.0f, 0.5f, 3.0f};
        const Tensor out = Tensor::empty({60, 3, 520}, dtype), lse = Tensor::empty({60, 3}, DType::kF32);
        const Tensor expected = Tensor::empty({60, 3, 520}, dtype),
                     expected_lse = Tensor::empty({60, 3}, DType::kF32);
        MergeSplitsArgs args{.partial_out = parts, .partial_lse = part_lse, .out = out, .lse = lse};
        if (has_sinks) args.sinks = sinks;
        cpu::merge_splits(args, isa);
        args.out = expected;
        args.lse = expected_lse;
        reference::merge_splits(args);
        expect_near(out, expected, 2 * tolerance_of(dtype));
        expect_near(lse, expected_lse, 1e-6);
      }
}

// Bytes of a cache after a store of 50 tokens, some of them unwanted.
template <class Store>
std::vector<uint8_t> stored(DType cache_dtype, const Store& store) {
  const Tensor cache = Tensor::zeros({20, 8, 3, 40}, cache_dtype);
  store(cache.view());
  const auto* bytes = static_cast<const uint8_t*>(cache.view().data);
  return {bytes, bytes + cache.view().num_bytes()};
}

TEST(CpuStore, WritesTheBitsOfTheReferenceForEveryDtype) {
  std::mt19937 random(10);
  std::vector<int32_t> slots, slot_map(160);
  for (int32_t i = 0; i < 50; ++i) slots.push_back(i % 9 == 0 ? -1 : 157 - 3 * i);
  for (int32_t i = 0; i < 160; ++i) slot_map[static_cast<size_t>(i)] = i % 5 == 0 ? -1 : 159 - i;
  for (cpu::Isa isa : cpu::available_isas())
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
      for (DType cache_dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2})
        for (const int32_t* map :
             {static_cast<const int32_t*>(nullptr), static_cast<const int32_t*>(slot_map.data())}) {
          const Tensor x = random_tensor({50, 3, 40}, dtype, random);
          const auto args = [&](const TensorView& cache) {
            // K and V in the two halves of each row.
            return StoreKvArgs{.k = x.view().slice(2, 0, 24),
                               .v = x.view().slice(2, 24, 40),
                               .k_cache = cache.slice(3, 0, 24),
                               .v_cache = cache.slice(3, 24, 40),
                               .slots = slots,
                               .slot_map = map,
                               .k_scale = 0.75f,
                               .v_scale = 1.0f};
          };
          EXPECT_EQ(stored(cache_dtype, [&](const TensorView& cache) { cpu::store_kv(args(cache), isa); }),
                    stored(cache_dtype, [&](const TensorView& cache) { reference::store_kv(args(cache)); }))
              << isa << ' ' << dtype << " into " << cache_dtype;
        }
}

TEST(CpuStore, WritesTheLatentRowsOfTheReference) {
  std::mt19937 random(12);
  std::vector<int32_t> slots;
  for (int32_t i = 0; i < 50; ++i) slots.push_back(i % 9 == 0 ? -1 : 157 - 3 * i);
  for (cpu::Isa isa : cpu::available_isas()) {
    const Tensor latent = random_tensor({50, 96}, DType::kBF16, random),
                 rope = random_tensor({50, 24}, DType::kBF16, random);
    const auto args = [&](const TensorView& cache) {
      return StoreMlaArgs{.latent = latent,
                          .rope = rope,
                          .cache = cache.reshape({20, 8, 120}),
                          .slots = slots,
                          .scale = 2.0f};
    };
    EXPECT_EQ(stored(DType::kF8E4M3, [&](const TensorView& cache) { cpu::store_mla(args(cache), isa); }),
              stored(DType::kF8E4M3, [&](const TensorView& cache) { reference::store_mla(args(cache)); }))
        << isa;
  }
}

}  // namespace
}  // namespace attend::kernels
