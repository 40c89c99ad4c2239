#include "attend/kernels/norm_rope/norm_rope_store.h"

#include "attend/base/error.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"

namespace attend::kernels {

void norm_rope_store(const NormRopeArgs& rope, const StoreKvArgs& store, Stream& stream) {
  require(rope.k.data == store.k.data, "norm_rope_store: k of the store is not the one that is rotated");
  if (const OnGpu gpu(stream); gpu) {
    check(rope, stream);
    check(store);
    return cuda::norm_rope_store(rope, store, stream);
  }
  norm_rope(rope, stream);
  store_kv(store, stream);
}

}  // namespace attend::kernels
