// Pools of any geometry: every element of every layer has its own address, and byte counts are correct.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "attend/kv/kv_pool.h"

namespace attend {
namespace {

// Calls fn(byte pointer) for every element of a view of rank 3 or 4.
template <class Fn>
void for_each_element(const TensorView& view, const Fn& fn) {
  if (view.rank == 0) {
    fn(static_cast<std::byte*>(view.data));
    return;
  }
  for (int64_t i = 0; i < view.shape[0]; ++i) for_each_element(view[i], fn);
}

// Addresses of the elements of views. All elements must be zero and have distinct addresses.
class ElementAddresses {
 public:
  void add(const TensorView& view) {
    for_each_element(view, [&](std::byte* element) {
      for (size_t i = 0; i < size_of(view.dtype); ++i) RC_ASSERT((element[i] == std::byte{0}));
      RC_ASSERT(addresses_.insert(element).second);
      num_bytes_ += size_of(view.dtype);
    });
  }
  // Checks that elements are at least their size apart.
  void check_gaps(size_t element_bytes) const {
    const std::byte* last = nullptr;
    for (const std::byte* element : addresses_) {
      RC_ASSERT((last == nullptr || element - last >= static_cast<std::ptrdiff_t>(element_bytes)));
      last = element;
    }
  }
  size_t num_bytes() const { return num_bytes_; }

 private:
  std::set<const std::byte*> addresses_;
  size_t num_bytes_ = 0;
};

DType any_cache_dtype() {
  return *rc::gen::element(DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2);
}

void check_counts(const KvPool& pool, int page_size, int num_pages, const ElementAddresses& addresses,
                  size_t num_bytes) {
  RC_ASSERT(pool.num_slots() == page_size * num_pages);
  RC_ASSERT(addresses.num_bytes() == pool.bytes_per_token() * static_cast<size_t>(pool.num_slots()));
  RC_ASSERT(addresses.num_bytes() <= num_bytes);
  addresses.check_gaps(size_of(pool.dtype()));
}

RC_GTEST_PROP(KvPoolProperty, ElementsOfAnMhaPoolHaveDistinctAddresses, ()) {
  const MhaKvPool::Config config{.num_layers = *rc::gen::inRange(1, 4),
                                 .num_kv_heads = *rc::gen::inRange(1, 4),
                                 .head_dim_qk = 8 * *rc::gen::inRange(1, 5),
                                 .head_dim_v = 8 * *rc::gen::inRange(1, 5),
                                 .page_size = *rc::gen::element(1, 2, 4, 16),
                                 .num_pages = *rc::gen::inRange(2, 6),
                                 .dtype = any_cache_dtype(),
                                 .layout = *rc::gen::element(KvLayout::kTokenMajor, KvLayout::kHeadMajor),
                                 .scales = {}};
  const MhaKvPool pool(config);
  ElementAddresses addresses;
  for (int layer_id = 0; layer_id < config.num_layers; ++layer_id) {
    const LayerKv kv = pool.layer(layer_id);
    for (const auto& [view, head_dim] :
         {std::pair{kv.k, config.head_dim_qk}, std::pair{kv.v, config.head_dim_v}}) {
      RC_ASSERT(view.rank == 4 && view.dtype == config.dtype && view.strides[3] == 1);
      RC_ASSERT(view.shape[0] == config.num_pages && view.shape[1] == config.page_size);
      RC_ASSERT(view.shape[2] == config.num_kv_heads && view.shape[3] == head_dim);
      RC_ASSERT(view.strides[1] ==
                (config.layout == KvLayout::kHeadMajor ? head_dim : config.num_kv_heads * head_dim));
      addresses.add(view);
    }
  }
  check_counts(pool, config.page_size, config.num_pages, addresses, MhaKvPool::num_bytes(config));
}

RC_GTEST_PROP(KvPoolProperty, ElementsOfAnMlaPoolHaveDistinctAddressesAndVIsTheStartOfK, ()) {
  const MlaKvPool::Config config{.num_layers = *rc::gen::inRange(1, 4),
                                 .kv_lora_rank = 8 * *rc::gen::inRange(1, 8),
                                 .rope_dim = 8 * *rc::gen::inRange(1, 4),
                                 .page_size = *rc::gen::element(1, 4, 16, 64),
                                 .num_pages = *rc::gen::inRange(2, 5),
                                 .dtype = any_cache_dtype(),
                                 .scales = {}};
  const MlaKvPool pool(config);
  ElementAddresses addresses;
  for (int layer_id = 0; layer_id < config.num_layers; ++layer_id) {
    addresses.add(pool.latent(layer_id));
    const LayerKv kv = pool.layer(layer_id);
    RC_ASSERT((kv.k.data == pool.latent(layer_id).data && kv.v.data == kv.k.data));
    RC_ASSERT(kv.k.shape[2] == 1 && kv.k.shape[3] == config.kv_lora_rank + config.rope_dim);
    RC_ASSERT(kv.v.shape[2] == 1 && kv.v.shape[3] == config.kv_lora_rank);
    for (int dim = 0; dim < 2; ++dim) RC_ASSERT(kv.v.strides[dim] == kv.k.strides[dim]);
  }
  check_counts(pool, config.page_size, config.num_pages, addresses, MlaKvPool::num_bytes(config));
}

}  // namespace
}  // namespace attend
