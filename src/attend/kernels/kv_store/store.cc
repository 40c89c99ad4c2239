#include "attend/kernels/kv_store/store.h"

#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/kv_store/cpu/store.h"
#include "attend/kernels/kv_store/cuda/store.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::kernels {

void check(const StoreKvArgs& args) {
  require_rank("k", args.k, 3);
  const int64_t num_tokens = args.k.shape[0], num_heads = args.k.shape[1];
  require_shape("v", args.v, {num_tokens, num_heads, args.v.shape[2]});
  const int64_t num_pages = args.to.k.shape[0], page_size = args.to.k.shape[1];
  require_shape("k_cache", args.to.k, {num_pages, page_size, num_heads, args.k.shape[2]});
  require_shape("v_cache", args.to.v, {num_pages, page_size, num_heads, args.v.shape[2]});
  require_activation("k", args.k);
  require_activation("v", args.v);
  require_cache("k_cache", args.to.k);
  require_cache("v_cache", args.to.v);
  require(args.to.k.dtype == args.to.v.dtype, "k_cache is ", args.to.k.dtype, ", v_cache is ",
          args.to.v.dtype, ": expected the same");
  require(args.to.slots.size() >= static_cast<size_t>(num_tokens), "slots: ", args.to.slots.size(), " for ",
          num_tokens, " tokens");
  require_scale("k_scale", args.to.k_scale);
  require_scale("v_scale", args.to.v_scale);
}

void check(const StoreMlaArgs& args) {
  require_rank("latent", args.latent, 2);
  require_rank("rope", args.rope, 2);
  const int64_t num_tokens = args.latent.shape[0];
  require_shape("rope", args.rope, {num_tokens, args.rope.shape[1]});
  require_latent_cache("cache", args.to.k, args.latent.shape[1], args.rope.shape[1]);
  require_activation("latent", args.latent);
  require_activation("rope", args.rope);
  require(args.to.slots.size() >= static_cast<size_t>(num_tokens), "slots: ", args.to.slots.size(), " for ",
          num_tokens, " tokens");
  require_scale("scale", args.to.k_scale);
}

void store_kv(const StoreKvArgs& args, Stream& stream) {
  check(args);
  if (const OnGpu gpu(stream); gpu) return cuda::store_kv(args, stream);
  cpu::store_kv(args, cpu::detect_isa());
}

void store_mla(const StoreMlaArgs& args, Stream& stream) {
  check(args);
  if (const OnGpu gpu(stream); gpu) return cuda::store_mla(args, stream);
  cpu::store_mla(args, cpu::detect_isa());
}

}  // namespace attend::kernels
