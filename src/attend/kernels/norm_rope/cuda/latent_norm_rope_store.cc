#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/norm_rope/cuda/latent_row_kernel.h"

namespace attend::kernels::cuda {

void latent_norm_rope_store(const LatentNormRopeStoreArgs& args, Stream& stream) {
  require_on_device("cache", args.to.k, stream);
  const bool scaled = has_scaled_rows(args.to.k), rounds_q = !args.q_latent.empty();
  launch_latent_row({.kv_a = {args.kv_a.data, args.kv_a.strides[0], 0},
                     .q_rope = out_rows(args.q_rope),
                     .q_latent = rounds_q ? out_rows(args.q_latent) : OutRows{},
                     .norm = {args.norm.data, to_element_type(args.norm.dtype)},
                     .cos = args.cos.as<const float>(),
                     .sin = args.sin.as<const float>(),
                     .positions = args.positions.data(),
                     .cache = args.to.k.data,
                     .page_stride = args.to.k.strides[0],
                     .token_stride = args.to.k.strides[1],
                     .slots = args.to.slots.data(),
                     .slot_map = args.to.slot_map,
                     .cos_stride = args.cos.strides[0],
                     .sin_stride = args.sin.strides[0],
                     .num_tokens = static_cast<int32_t>(args.kv_a.shape[0]),
                     .num_heads = static_cast<int32_t>(args.q_rope.shape[1]),
                     .rank = static_cast<int32_t>(args.norm.shape[0]),
                     .rope_dim = static_cast<int32_t>(args.q_rope.shape[2]),
                     .latent_dim = rounds_q ? static_cast<int32_t>(args.q_latent.shape[2]) : 0,
                     .page_size = static_cast<int32_t>(args.to.k.shape[1]),
                     .eps = args.eps,
                     .scale = args.to.k_scale,
                     .interleaved = args.interleaved,
                     .scaled_rows = scaled,
                     .element = to_element_type(args.kv_a.dtype),
                     .cache_element = scaled ? Element::kF8E4M3 : to_element_type(args.to.k.dtype)},
                    stream.handle);
}

}  // namespace attend::kernels::cuda
