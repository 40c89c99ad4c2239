#include "attend/kernels/kv_store/cpu/store.h"

#include "attend/base/parallel.h"
#include "attend/kernels/common/cpu/row_kernels.h"

namespace attend::kernels::cpu {
namespace {

char* address(const TensorView& view, int64_t offset) {
  return static_cast<char*>(view.data) + offset * static_cast<int64_t>(size_of(view.dtype));
}

// Stores the heads of one token: x is [num_heads, dim], the cache [num_pages, page_size, num_heads, dim].
void store_heads(const RowKernels& kernels, const TensorView& x, const TensorView& cache, int64_t token,
                 int32_t slot, float scale) {
  const int64_t page_size = cache.shape[1];
  const int64_t row = slot / page_size * cache.strides[0] + slot % page_size * cache.strides[1];
  for (int64_t head = 0; head < x.shape[1]; ++head)
    kernels.store(address(x, token * x.strides[0] + head * x.strides[1]), x.dtype,
                  address(cache, row + head * cache.strides[2]), cache.dtype, scale,
                  static_cast<int>(x.shape[2]));
}

}  // namespace

void store_kv(const StoreKvArgs& args, Isa isa) {
  const RowKernels kernels = row_kernels(isa);
  const int64_t elements_per_token = args.k.shape[1] * (args.k.shape[2] + args.v.shape[2]);
  parallel_for_rows(args.k.shape[0], elements_per_token, [&](int64_t token) {
    int32_t slot = args.slots[static_cast<size_t>(token)];
    if (slot >= 0 && args.slot_map != nullptr) slot = args.slot_map[slot];
    if (slot < 0) return;
    store_heads(kernels, args.k, args.k_cache, token, slot, args.k_scale);
    store_heads(kernels, args.v, args.v_cache, token, slot, args.v_scale);
  });
}

void store_mla(const StoreMlaArgs& args, Isa isa) {
  const RowKernels kernels = row_kernels(isa);
  const int64_t rank = args.latent.shape[1], page_size = args.cache.shape[1];
  parallel_for_rows(args.latent.shape[0], args.cache.shape[2], [&](int64_t token) {
    const int32_t slot = args.slots[static_cast<size_t>(token)];
    if (slot < 0) return;
    const int64_t row = slot / page_size * args.cache.strides[0] + slot % page_size * args.cache.strides[1];
    kernels.store(address(args.latent, token * args.latent.strides[0]), args.latent.dtype,
                  address(args.cache, row), args.cache.dtype, args.scale, static_cast<int>(rank));
    kernels.store(address(args.rope, token * args.rope.strides[0]), args.rope.dtype,
                  address(args.cache, row + rank), args.cache.dtype, args.scale,
                  static_cast<int>(args.rope.shape[1]));
  });
}

}  // namespace attend::kernels::cpu
