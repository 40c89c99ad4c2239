// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/common/refuse_gpu.h"
#include "attend/kernels/kv_store/cuda/batch_arrays.h"
#include "attend/kernels/kv_store/cuda/latent_rows.h"
#include "attend/kernels/kv_store/cuda/selected_rows.h"
#include "attend/kernels/kv_store/cuda/store.h"

namespace attend::kernels::cuda {

void derive_batch(const BatchSource&, const BatchArrays&, Stream&) { refuse("derive_batch"); }
void append_keys(const BatchSource&, const BatchArrays&, const StoreKvArgs&, Stream&) {
  refuse("append_keys");
}
void gather_latent(const GatherLatentArgs&, Stream&) { refuse("gather_latent"); }
void lengths_of(View<const int32_t>, View<int32_t>, Stream&) { refuse("lengths_of"); }
void copy_to_heads(const TensorView&, const TensorView&, Stream&) { refuse("copy_to_heads"); }
void compact_slots(const CompactSlotsArgs&, Stream&) { refuse("compact_slots"); }
void dequantise_rows(const DequantiseRowsArgs&, Stream&) { refuse("dequantise_rows"); }
void store_kv(const StoreKvArgs&, Stream&) { refuse("store_kv"); }
void store_mla(const StoreMlaArgs&, Stream&) { refuse("store_mla"); }

}  // namespace attend::kernels::cuda
