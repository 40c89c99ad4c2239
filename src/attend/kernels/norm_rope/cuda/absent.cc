// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/common/refuse_gpu.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/norm_rope/cuda/rope_rows.h"

namespace attend::kernels::cuda {

void embedding(View<const int32_t>, const TensorView&, const TensorView&, Stream&) { refuse("embedding"); }
void rms_norm(const TensorView&, const TensorView&, float, const TensorView&, Stream&, float) {
  refuse("rms_norm");
}
void add_rms_norm(const TensorView&, const TensorView&, const TensorView&, float, const TensorView&,
                  Stream&) {
  refuse("add_rms_norm");
}
void silu_mul(const TensorView&, const TensorView&, Stream&) { refuse("silu_mul"); }
void norm_rope(const NormRopeArgs&, Stream&) { refuse("rope"); }
void norm_rope_store(const NormRopeArgs&, const StoreKvArgs&, Stream&) { refuse("rope"); }
void dynamic_angles(const DynamicAnglesArgs&, Stream&) { refuse("dynamic_angles"); }
void gather_rows(const TensorView&, View<const int32_t>, const TensorView&, Stream&) {
  refuse("gather_rows");
}
void apply_rope_rows(const RopeRowsArgs&, Stream&) { refuse("apply_rope_rows"); }

}  // namespace attend::kernels::cuda
