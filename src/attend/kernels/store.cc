#include "attend/kernels/store.h"

#include "attend/kernels/cpu/store.h"
#include "attend/kernels/cuda/attention.h"
#include "attend/kernels/cuda/elementwise.h"
#include "attend/kernels/on_gpu.h"

namespace attend::kernels {

void store_kv(const StoreKvArgs& args, Stream& stream) {
  check(args);
  if (const OnGpu gpu(stream); gpu) return cuda::store_kv(args, stream);
  cpu::store_kv(args, cpu::detect_isa());
}

void norm_rope_store(const NormRopeArgs& rope, const StoreKvArgs& store, Stream& stream) {
  require(rope.k.data == store.k.data, "norm_rope_store: k of the store is not the one that is turned");
  if (const OnGpu gpu(stream); gpu) {
    check(rope, stream);
    check(store);
    return cuda::norm_rope_store(rope, store, stream);
  }
  norm_rope(rope, stream);
  store_kv(store, stream);
}

void store_mla(const StoreMlaArgs& args, Stream& stream) {
  check(args);
  if (const OnGpu gpu(stream); gpu) return cuda::store_mla(args, stream);
  cpu::store_mla(args, cpu::detect_isa());
}

}  // namespace attend::kernels
