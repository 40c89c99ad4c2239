#include "attend/kernels/fused/qkv.h"

#include "attend/base/error.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/fused/cuda/qkv.h"

namespace attend::kernels {

void qkv_norm_rope_store(const LinearArgs& product, const NormRopeArgs& rope, const StoreKvArgs& store,
                         Stream& stream) {
  check(product, stream);
  check(rope, stream);
  check(store);
  require(rope.k.data == store.k.data, "qkv_norm_rope_store: k of the store is not the one that is rotated");
  if (const OnGpu gpu(stream); gpu && cuda::qkv_norm_rope_store(product, rope, store, stream)) return;
  linear(product, stream);
  norm_rope_store(rope, store, stream);
}

}  // namespace attend::kernels
