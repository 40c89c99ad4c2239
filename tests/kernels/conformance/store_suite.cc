#include "tests/kernels/conformance/store_suite.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "attend/kernels/common/element.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "tests/kernels/conformance/cases/literal.h"
#include "tests/kernels/conformance/cases/poison.h"
#include "tests/kernels/conformance/cases/random.h"

namespace attend::conformance {
namespace {

using kernels::reference::offset;
using kernels::reference::store;

struct StoreCase {
  int num_tokens = 5;
  int num_heads = 2;
  int head_dim_qk = 64;  // MLA: kv_lora_rank
  int head_dim_v = 64;   // MLA: rope_dim
  int page_size = 16;
  KvLayout layout = KvLayout::kTokenMajor;
  DType dtype = DType::kF32;
  DType cache_dtype = DType::kF32;
  float k_scale = 1.0f;
  float v_scale = 1.0f;
  float deviation = 1.0f;  // standard deviation of the values; fp8 saturates at large ones
  bool slot_map = false;
  bool strided = false;
  uint64_t seed = 0;
};

std::string to_literal(const StoreCase& c) {
  const StoreCase usual;
  LiteralPrinter printer("StoreCase");
  const auto field = [&](std::string_view name, auto StoreCase::*member) {
    printer.field(name, c.*member, usual.*member);
  };
  field("num_tokens", &StoreCase::num_tokens);
  field("num_heads", &StoreCase::num_heads);
  field("head_dim_qk", &StoreCase::head_dim_qk);
  field("head_dim_v", &StoreCase::head_dim_v);
  field("page_size", &StoreCase::page_size);
  field("layout", &StoreCase::layout);
  field("dtype", &StoreCase::dtype);
  field("cache_dtype", &StoreCase::cache_dtype);
  field("k_scale", &StoreCase::k_scale);
  field("v_scale", &StoreCase::v_scale);
  field("deviation", &StoreCase::deviation);
  field("slot_map", &StoreCase::slot_map);
  field("strided", &StoreCase::strided);
  field("seed", &StoreCase::seed);
  return printer.finish();
}

std::vector<StoreCase> store_cases() {
  constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  constexpr DType kCacheDTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};
  constexpr int kHeadDims[] = {8, 64, 72, 80, 112, 128, 192, 256};
  constexpr int kPageSizes[] = {1, 16, 64, 128};
  constexpr float kScales[] = {1.0f, 0.037f, 1.7f};
  constexpr float kDeviations[] = {1.0f, 1.0f, 0.002f, 900.0f};
  std::vector<StoreCase> cases;
  Random random(1605);
  for (int i = 0; i < 90; ++i)
    cases.push_back({.num_tokens = random.below(20),
                     .num_heads = 1 + random.below(8),
                     .head_dim_qk = kHeadDims[random.below(8)],
                     .head_dim_v = kHeadDims[random.below(8)],
                     .page_size = kPageSizes[random.below(4)],
                     .layout = random.below(2) == 0 ? KvLayout::kTokenMajor : KvLayout::kHeadMajor,
                     .dtype = kDTypes[i % 3],
                     .cache_dtype = kCacheDTypes[i % 5],
                     .k_scale = kScales[random.below(3)],
                     .v_scale = kScales[random.below(3)],
                     .deviation = kDeviations[random.below(4)],
                     .slot_map = random.below(3) == 0,
                     .strided = random.below(3) == 0,
                     .seed = random.next() % 1000000});
  return cases;
}

// Tensor of normally distributed rows, with gaps between rows if strided.
TensorView make_rows(const StoreCase& c, std::initializer_list<int64_t> shape, Random& random,
                     Tensor& storage) {
  const std::vector<int64_t> wanted(shape);
  const int64_t gap = c.strided ? 8 : 0;
  TensorView view;
  if (wanted.size() == 3) {
    storage = Tensor::empty({wanted[0], wanted[1], wanted[2] + gap}, c.dtype);
    view = storage.view().slice(2, 0, wanted[2]);
  } else {
    storage = Tensor::empty({wanted[0], wanted[1] + gap}, c.dtype);
    view = storage.view().slice(1, 0, wanted[1]);
  }
  poison(storage);
  const int64_t row_length = wanted.back();
  for (int64_t i = 0; i < view.num_elements(); ++i) {
    const int64_t row = i / row_length, d = i % row_length;
    const int64_t at =
        wanted.size() == 3 ? offset(view, row / wanted[1], row % wanted[1], d) : offset(view, row, d);
    store(view, at, static_cast<double>(c.deviation * random.normal()));
  }
  return view;
}

struct Slots {
  int num_pages = 0;
  std::vector<int32_t> slots;     // [num_tokens], some -1
  std::vector<int32_t> slot_map;  // empty: no slot map
};

// Distinct slots outside the padding page, in random order.
Slots make_slots(const StoreCase& c, Random& random) {
  Slots made;
  made.num_pages = 2 + 2 * (c.num_tokens + c.page_size - 1) / c.page_size;
  std::vector<int32_t> free(static_cast<size_t>((made.num_pages - 1) * c.page_size));
  std::iota(free.begin(), free.end(), c.page_size);
  random.shuffle(free);
  for (int token = 0; token < c.num_tokens; ++token) {
    const int32_t slot = free[static_cast<size_t>(token)];
    made.slots.push_back(random.below(5) == 0 ? -1 : slot);
    if (!c.slot_map || made.slots.back() < 0) continue;
    // The drawn slot is in the other half. The token's own slot is counted down from the end.
    made.slots.back() = 2 * c.num_tokens - token;
    made.slot_map.resize(static_cast<size_t>(2 * c.num_tokens + 1), kHugeId);
    made.slot_map[static_cast<size_t>(made.slots.back())] = slot;
  }
  return made;
}

// Pool with memory [num_pages, outer, inner, dim], viewed as [num_pages, page_size, num_heads, dim].
TensorView make_cache(const StoreCase& c, int num_pages, int dim, Tensor& storage) {
  const bool head_major = c.layout == KvLayout::kHeadMajor;
  const int64_t outer = head_major ? c.num_heads : c.page_size,
                inner = head_major ? c.page_size : c.num_heads;
  storage = Tensor::empty({num_pages, outer, inner, dim + (c.strided ? 16 : 0)}, c.cache_dtype);
  poison(storage);
  TensorView view = storage.view().slice(3, 0, dim);
  if (head_major) {
    std::swap(view.shape[1], view.shape[2]);
    std::swap(view.strides[1], view.strides[2]);
  }
  return view;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.view().data, b.view().data, a.view().num_bytes()) == 0;
}

}  // namespace

void run_store_kv_conformance(const StoreKvFn& kernel) {
  for (const StoreCase& c : store_cases()) {
    Random random(c.seed);
    const Slots slots = make_slots(c, random);
    Tensor k, v, k_cache, v_cache, wanted_k_cache, wanted_v_cache;
    kernels::StoreKvArgs args{.k = make_rows(c, {c.num_tokens, c.num_heads, c.head_dim_qk}, random, k),
                              .v = make_rows(c, {c.num_tokens, c.num_heads, c.head_dim_v}, random, v),
                              .to = {.k = make_cache(c, slots.num_pages, c.head_dim_qk, wanted_k_cache),
                                     .v = make_cache(c, slots.num_pages, c.head_dim_v, wanted_v_cache),
                                     .slots = slots.slots,
                                     .slot_map = slots.slot_map.empty() ? nullptr : slots.slot_map.data(),
                                     .k_scale = c.k_scale,
                                     .v_scale = c.v_scale}};
    kernels::reference::store_kv(args);
    args.to.k = make_cache(c, slots.num_pages, c.head_dim_qk, k_cache);
    args.to.v = make_cache(c, slots.num_pages, c.head_dim_v, v_cache);
    kernel(args);
    EXPECT_TRUE(same_bytes(k_cache, wanted_k_cache)) << "K of " << to_literal(c);
    EXPECT_TRUE(same_bytes(v_cache, wanted_v_cache)) << "V of " << to_literal(c);
  }
}

void run_store_mla_conformance(const StoreMlaFn& kernel) {
  std::vector<StoreCase> cases = store_cases();
  for (StoreCase c : store_cases()) {
    c.head_dim_qk = kernels::kScaledRow.rank;
    c.head_dim_v = kernels::kScaledRow.rope_dim;
    c.cache_dtype = DType::kU8;
    cases.push_back(c);
  }
  for (StoreCase c : cases) {
    c.num_heads = 1;
    c.layout = KvLayout::kTokenMajor;
    c.slot_map = false;
    Random random(c.seed);
    const Slots slots = make_slots(c, random);
    Tensor latent, rope, cache, wanted_cache;
    const auto rows_of = [&](Tensor& storage) {
      const int width =
          c.cache_dtype == DType::kU8 ? kernels::kScaledRow.bytes : c.head_dim_qk + c.head_dim_v;
      TensorView view = make_cache(c, slots.num_pages, width, storage);
      view.rank = 3;
      view.shape[2] = view.shape[3];
      view.strides[2] = view.strides[3];
      return view;
    };
    kernels::StoreMlaArgs args{
        .latent = make_rows(c, {c.num_tokens, c.head_dim_qk}, random, latent),
        .rope = make_rows(c, {c.num_tokens, c.head_dim_v}, random, rope),
        .to = {.k = rows_of(wanted_cache), .slots = slots.slots, .k_scale = c.k_scale}};
    kernels::reference::store_mla(args);
    args.to.k = rows_of(cache);
    kernel(args);
    EXPECT_TRUE(same_bytes(cache, wanted_cache)) << to_literal(c);
  }
}

}  // namespace attend::conformance
