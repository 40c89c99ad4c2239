// Small operations between attention and linear layers on the CPU. Arguments as described in elementwise.h
// and rope.h; their functions check them and call these.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels::cpu {

void embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, float scale, Isa isa);
void add_embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, Isa isa);
void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out,
              float weight_offset, Isa isa);
void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& out, float weight_offset, Isa isa);
void rms_norm_add(const TensorView& x, const TensorView& weight, float eps, const TensorView& residual,
                  Isa isa);
void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                const TensorView& out, Isa isa);
void add_layer_norm(const TensorView& x, const TensorView& residual, const TensorView& weight,
                    const TensorView& bias, float eps, Isa isa);
void silu_mul(const TensorView& gate_up, const TensorView& out, Isa isa);
void gelu_mul(const TensorView& gate_up, const TensorView& out, Isa isa);
void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out, Isa isa);
void gelu(const TensorView& x, Isa isa);
void gelu_tanh(const TensorView& x, Isa isa);
void relu(const TensorView& x, Isa isa);
void relu2(const TensorView& x, Isa isa);
void silu(const TensorView& x, Isa isa);
void clamp(const TensorView& x, float limit, Isa isa);
void gate_mul(const TensorView& gate, const TensorView& x, GateFunction function, Isa isa);
void scale_by_gate(const TensorView& gate, const TensorView& x, GateFunction function, Isa isa);
void xielu(const TensorView& x, float alpha_p, float alpha_n);
void copy_heads(const TensorView& x, const TensorView& out);
void multiply(const TensorView& factor, const TensorView& x, Isa isa);
void scale(const TensorView& x, float factor, Isa isa);
void soft_cap(const TensorView& x, float cap, Isa isa);
void rope(const TensorView& x, View<const int32_t> positions, const TensorView& cos, const TensorView& sin,
          bool interleaved, Isa isa);
void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out, Isa isa);

}  // namespace attend::kernels::cpu
