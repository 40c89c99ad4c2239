// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/common/refuse_gpu.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/norm_rope/cuda/latent_norm_rope_store.h"
#include "attend/kernels/norm_rope/cuda/rope_rows.h"

namespace attend::kernels::cuda {

void latent_norm_rope_store(const LatentNormRopeStoreArgs&, Stream&) { refuse("latent_norm_rope_store"); }
void embedding(View<const int32_t>, const TensorView&, const TensorView&, float, Stream&) {
  refuse("embedding");
}
void rms_norm(const TensorView&, const TensorView&, float, const TensorView&, Stream&, float) {
  refuse("rms_norm");
}
void add_rms_norm(const TensorView&, const TensorView&, const TensorView&, float, const TensorView&, Stream&,
                  float) {
  refuse("add_rms_norm");
}
void rms_norm_add(const TensorView&, const TensorView&, float, const TensorView&, Stream&) {
  refuse("rms_norm_add");
}
void add_embedding(View<const int32_t>, const TensorView&, const TensorView&, Stream&) {
  refuse("add_embedding");
}
void layer_norm(const TensorView&, const TensorView&, const TensorView&, const TensorView&, float,
                const TensorView&, Stream&) {
  refuse("layer_norm");
}
void gelu(const TensorView&, Stream&) { refuse("gelu"); }
void gelu_tanh(const TensorView&, Stream&) { refuse("gelu_tanh"); }
void silu_mul(const TensorView&, const TensorView&, Stream&) { refuse("silu_mul"); }
void gelu_mul(const TensorView&, const TensorView&, Stream&) { refuse("gelu_mul"); }
void gelu_tanh_mul(const TensorView&, const TensorView&, Stream&) { refuse("gelu_tanh_mul"); }
void soft_cap(const TensorView&, float, Stream&) { refuse("soft_cap"); }
void norm_rope(const NormRopeArgs&, Stream&) { refuse("rope"); }
void norm_rope_store(const NormRopeArgs&, const StoreKvArgs&, Stream&) { refuse("rope"); }
void scale_by_position(const TensorView&, View<const int32_t>, const QueryTemperature&, Stream&) {
  refuse("scale_by_position");
}
void dynamic_angles(const DynamicAnglesArgs&, Stream&) { refuse("dynamic_angles"); }
void rope_rows_by_length(const RopeRowsByLengthArgs&, Stream&) { refuse("rope_rows_by_length"); }
void gather_rows(const TensorView&, View<const int32_t>, const TensorView&, Stream&) {
  refuse("gather_rows");
}
void apply_rope_rows(const RopeRowsArgs&, Stream&) { refuse("apply_rope_rows"); }

}  // namespace attend::kernels::cuda
