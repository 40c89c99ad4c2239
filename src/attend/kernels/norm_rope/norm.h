// RMSNorm. Activations are f32 on the CPU, f32, f16 or bf16 on GPUs; weights f32, f16 or bf16.
#pragma once

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// out = x / sqrt(mean(x^2) + eps) * (weight + weight_offset), over the last dimension (RMSNorm, arXiv
// 1910.07467). x, out: [.., dim], last stride 1; rank 2 or 3 with any outer strides (q/k norm works on
// heads). weight: [dim]; on a GPU it may be read before the kernels launched before on the stream have ended,
// as those of linear.h. weight_offset is 1 in Gemma's convention.
void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out, Stream& stream,
              float weight_offset = 0.0f);

// residual += x; out = rms_norm(residual), the weight and its offset as there. All [num_tokens, hidden]; out
// may be x.
void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& out, Stream& stream, float weight_offset = 0.0f);

// residual += rms_norm(x), the norm rounded to the dtype of x before it is added: a norm behind a sublayer.
// All [num_tokens, hidden]; the weight is read as there. x is overwritten.
void rms_norm_add(const TensorView& x, const TensorView& weight, float eps, const TensorView& residual,
                  Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
