// Inner loops of recurrent layers for one instruction set.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {

// Rows of one value head's state and consecutive tokens of one request.
struct DeltaRows {
  float* state = nullptr;  // [num_rows, head_dim_k], updated
  int64_t num_rows = 0, head_dim_k = 0;
  int64_t num_tokens = 0;
  const float *q = nullptr, *k = nullptr;  // [num_tokens, head_dim_k], normalized
  const float* kq = nullptr;               // [num_tokens]: k . q
  const float* decay = nullptr;            // [num_tokens], or per channel [num_tokens, head_dim_k]
  bool decays_per_channel = false;
  const float* beta = nullptr;  // [num_tokens]
  const float* v = nullptr;     // [num_tokens, num_rows] with v_stride
  float* out = nullptr;         // [num_tokens, num_rows] with out_stride
  int64_t v_stride = 0, out_stride = 0;
};

// Rows of one head's state of a selective scan, and consecutive tokens of one request.
struct ScanRows {
  float* state = nullptr;  // [num_rows, state_dim], updated
  int64_t num_rows = 0, state_dim = 0;
  int64_t num_tokens = 0;
  const float *b = nullptr, *c = nullptr;         // [num_tokens, state_dim] with bc_stride
  const float *decay = nullptr, *step = nullptr;  // [num_tokens]
  float d = 0.0f;
  const float* x = nullptr;  // [num_tokens, num_rows] with x_stride
  float* out = nullptr;      // [num_tokens, num_rows] with out_stride
  int64_t bc_stride = 0, x_stride = 0, out_stride = 0;
};

struct RecurrentKernels {
  // out = act(bias + sum over j of weights[j] * x[j]), n channels. weights: [taps, n], contiguous; bias: null
  // for none.
  void (*conv)(const float* const* x, const float* weights, const float* bias, int64_t taps, bool silu,
               float* out, int64_t n) = nullptr;
  // out = x * scale / sqrt(sum of squares + 1e-6).
  void (*l2_norm)(const float* x, float scale, float* out, int64_t n) = nullptr;
  float (*dot)(const float* a, const float* b, int64_t n) = nullptr;
  // out = exp(-rate softplus(x + bias)) or, with a lower_bound below 0, exp(lower_bound sigmoid(rate (x +
  // bias))).
  void (*decay)(const float* x, const float* bias, float rate, float lower_bound, float* out,
                int64_t n) = nullptr;
  // The recurrence of gated_delta_rule(), in the form that reads each row of S once:
  //   p = S k, u = S q, delta = beta (v - decay p), out = decay u + (k . q) delta, S = decay S + delta k^T
  // A decay per channel multiplies k in p and q in u instead.
  void (*delta_rule)(const DeltaRows& rows) = nullptr;
  // The recurrence of selective_scan().
  void (*scan)(const ScanRows& rows) = nullptr;
  // x = y / sqrt(mean(y^2) + eps) * weight with y = x * silu(gate).
  void (*normalize_gated)(float* x, const void* weight, DType dtype, float eps, const float* gate,
                          int64_t n) = nullptr;
  // x = x / sqrt(mean(x^2) + eps) * weight * silu(gate).
  void (*gated_norm)(float* x, const void* weight, DType dtype, float eps, const float* gate,
                     int64_t n) = nullptr;
  // Same with sigmoid(gate).
  void (*sigmoid_gated_norm)(float* x, const void* weight, DType dtype, float eps, const float* gate,
                             int64_t n) = nullptr;
};

// One implementation per instruction set.
RecurrentKernels recurrent_kernels_portable();
RecurrentKernels recurrent_kernels_avx2();
RecurrentKernels recurrent_kernels_avx512();

RecurrentKernels recurrent_kernels(Isa isa);

}  // namespace attend::kernels::cpu
