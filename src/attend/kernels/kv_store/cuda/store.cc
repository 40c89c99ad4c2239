#include "attend/kernels/kv_store/cuda/store.h"

#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/kv_store/cuda/store_kernel.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::kernels::cuda {

StoreParams store_params(const StoreKvArgs& args, const Stream& stream) {
  require_on_device("k", args.k, stream);
  require_on_device("v", args.v, stream);
  require_on_device("k_cache", args.to.k, stream);
  require_on_device("v_cache", args.to.v, stream);
  const auto rows = [](const TensorView& from, const TensorView& cache, float scale) {
    return StoreRows{.from = token_rows(from),
                     .to = cache.data,
                     .page_stride = cache.strides[0],
                     .token_stride = cache.strides[1],
                     .head_stride = cache.strides[2],
                     .head_dim = static_cast<int32_t>(from.shape[2]),
                     .first_column = 0,
                     .scale = scale,
                     .from_element = to_element_type(from.dtype),
                     .to_element = to_element_type(cache.dtype)};
  };
  return {.rows = {rows(args.k, args.to.k, args.to.k_scale), rows(args.v, args.to.v, args.to.v_scale)},
          .slots = args.to.slots.data(),
          .slot_map = args.to.slot_map,
          .num_tokens = static_cast<int32_t>(args.k.shape[0]),
          .num_heads = static_cast<int32_t>(args.k.shape[1]),
          .page_size = static_cast<int32_t>(args.to.k.shape[1])};
}

void store_kv(const StoreKvArgs& args, Stream& stream) {
  launch_store(store_params(args, stream), stream.handle);
}

void store_mla(const StoreMlaArgs& args, Stream& stream) {
  require_on_device("latent", args.latent, stream);
  require_on_device("rope", args.rope, stream);
  require_on_device("cache", args.to.k, stream);
  const bool scaled = has_scaled_rows(args.to.k);
  const auto rows = [&](const TensorView& from, int64_t first_column) {
    return StoreRows{.from = {from.data, from.strides[0], 0},
                     .to = args.to.k.data,
                     .page_stride = args.to.k.strides[0],
                     .token_stride = args.to.k.strides[1],
                     .head_stride = 0,
                     .head_dim = static_cast<int32_t>(from.shape[1]),
                     .first_column = static_cast<int32_t>(first_column),
                     .scale = args.to.k_scale,
                     .from_element = to_element_type(from.dtype),
                     .to_element = scaled ? Element::kF8E4M3 : to_element_type(args.to.k.dtype)};
  };
  const auto launch = scaled ? launch_store_scaled : launch_store;
  launch({.rows = {rows(args.latent, 0), rows(args.rope, args.latent.shape[1])},
          .slots = args.to.slots.data(),
          .slot_map = args.to.slot_map,
          .num_tokens = static_cast<int32_t>(args.latent.shape[0]),
          .num_heads = 1,
          .page_size = static_cast<int32_t>(args.to.k.shape[1])},
         stream.handle);
}

}  // namespace attend::kernels::cuda
