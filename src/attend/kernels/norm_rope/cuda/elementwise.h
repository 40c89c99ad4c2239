// Operations of elementwise.h and rope.h on a GPU. Indices are in device memory; activations have any float
// dtype except fp8. The functions of those headers check shapes and call these.
#pragma once

#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"

namespace attend::kernels::cuda {

void embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, float scale,
               Stream& stream);
void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out, Stream& stream,
              float weight_offset);
void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& out, Stream& stream, float weight_offset);
void rms_norm_add(const TensorView& x, const TensorView& weight, float eps, const TensorView& residual,
                  Stream& stream);
void add_embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, Stream& stream);
// `addend`: added to x before the norm; empty: none.
void layer_norm(const TensorView& x, const TensorView& addend, const TensorView& weight,
                const TensorView& bias, float eps, const TensorView& out, Stream& stream);
void gelu(const TensorView& x, Stream& stream);
void gelu_tanh(const TensorView& x, Stream& stream);
void relu(const TensorView& x, Stream& stream);
void relu2(const TensorView& x, Stream& stream);
void silu(const TensorView& x, Stream& stream);
void clamp(const TensorView& x, float limit, Stream& stream);
void gate_mul(const TensorView& gate, const TensorView& x, GateFunction function, Stream& stream);
void scale_by_gate(const TensorView& gate, const TensorView& x, GateFunction function, Stream& stream);
void copy_heads(const TensorView& x, const TensorView& out, Stream& stream);
void xielu(const TensorView& x, const XieluAlphas& alphas, Stream& stream);
void multiply(const TensorView& factor, const TensorView& x, Stream& stream);
void scale(const TensorView& x, float factor, Stream& stream);
void scale(const TensorView& x, const TensorView& factor, Stream& stream);
void silu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream);
void gelu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream);
void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out, Stream& stream);
void soft_cap(const TensorView& x, float cap, Stream& stream);
void norm_rope(const NormRopeArgs& args, Stream& stream);
void norm_rope_store(const NormRopeArgs& rope, const StoreKvArgs& store, Stream& stream);
void scale_by_position(const TensorView& q, View<const int32_t> positions,
                       const QueryTemperature& temperature, Stream& stream);
void dynamic_angles(const DynamicAnglesArgs& args, Stream& stream);
void axis_angles(const AxisAnglesArgs& args, Stream& stream);
void rope_rows_by_length(const RopeRowsByLengthArgs& args, Stream& stream);
// Without `rows`: all rows.
void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out, Stream& stream);
// out += x, of one dtype.
void add_rows(const TensorView& x, const TensorView& out, Stream& stream);
void clear_first_rows(View<const int32_t> positions, const TensorView& x, Stream& stream);

// Norm, rotation and store of a latent row on a GPU. Arguments are those checked by the entry.

void latent_norm_rope_store(const LatentNormRopeStoreArgs& args, Stream& stream);

// apply_rope_rows (rope_rows.h) on a GPU, in one launch.

void apply_rope_rows(const RopeRowsArgs& args, Stream& stream);

struct NormRopeParams;
// Kernel parameters of norm_rope_store() (elementwise_kernels.h). Throws Error(kInvalidArgument) for a tensor
// that is not on the stream's device, and Error(kUnsupported) for more than kMaxRopeHalf pairs.
NormRopeParams norm_rope_store_params(const NormRopeArgs& rope, const StoreKvArgs& store,
                                      const Stream& stream);

}  // namespace attend::kernels::cuda
