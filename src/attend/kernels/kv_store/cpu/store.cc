#include "attend/kernels/kv_store/cpu/store.h"

#include <array>

#include "attend/base/parallel.h"
#include "attend/kernels/common/cpu/row_kernels.h"
#include "attend/kernels/kv_store/selected_rows.h"

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
    int32_t slot = args.to.slots[static_cast<size_t>(token)];
    if (slot >= 0 && args.to.slot_map != nullptr) slot = args.to.slot_map[slot];
    if (slot < 0) return;
    store_heads(kernels, args.k, args.to.k, token, slot, args.to.k_scale);
    store_heads(kernels, args.v, args.to.v, token, slot, args.to.v_scale);
  });
}

void store_mla(const StoreMlaArgs& args, Isa isa) {
  const RowKernels kernels = row_kernels(isa);
  const int64_t rank = args.latent.shape[1], page_size = args.to.k.shape[1];
  const bool scaled = has_scaled_rows(args.to.k);
  parallel_for_rows(args.latent.shape[0], args.to.k.shape[2], [&](int64_t token) {
    int32_t slot = args.to.slots[static_cast<size_t>(token)];
    if (slot >= 0 && args.to.slot_map != nullptr) slot = args.to.slot_map[slot];
    if (slot < 0) return;
    const int64_t row = slot / page_size * args.to.k.strides[0] + slot % page_size * args.to.k.strides[1];
    // A scaled row is quantized as a whole from these values.
    std::array<float, kScaledRow.width()> values;
    const auto store_part = [&](const TensorView& x, int64_t column) {
      kernels.store(
          address(x, token * x.strides[0]), x.dtype,
          scaled ? reinterpret_cast<char*>(values.data() + column) : address(args.to.k, row + column),
          scaled ? DType::kF32 : args.to.k.dtype, args.to.k_scale, static_cast<int>(x.shape[1]));
    };
    store_part(args.latent, 0);
    store_part(args.rope, rank);
    if (scaled)
      write_scaled_row(kernels, values.data(), reinterpret_cast<std::byte*>(address(args.to.k, row)));
  });
}

}  // namespace attend::kernels::cpu
