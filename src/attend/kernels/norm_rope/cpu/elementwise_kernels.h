// Elementwise operations on one row for one instruction set.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {

// Rows are contiguous f32; weights and table rows are f32, f16 or bf16.
struct ElementwiseKernels {
  // to = from, converted to f32.
  void (*widen)(const void* from, DType dtype, float* to, int64_t n) = nullptr;
  // residual += x.
  void (*add)(float* residual, const float* x, int64_t n) = nullptr;
  // residual += x.
  void (*add_weights)(float* residual, const void* x, DType dtype, int64_t n) = nullptr;
  // out = x / sqrt(mean(x^2) + eps) * (weight + weight_offset); out may be x.
  void (*rms_norm)(const float* x, const void* weight, DType dtype, float weight_offset, float eps,
                   float* out, int64_t n) = nullptr;
  // out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias; out may be x. weight and bias may be null.
  void (*layer_norm)(const float* x, const void* weight, const void* bias, DType dtype, float eps, float* out,
                     int64_t n) = nullptr;
  // out = gate / (1 + e^-gate) * up.
  void (*silu_mul)(const float* gate, const float* up, float* out, int64_t n) = nullptr;
  // out = gelu(gate) * up, exact and in its tanh form (gelu.h).
  void (*gelu_mul)(const float* gate, const float* up, float* out, int64_t n) = nullptr;
  void (*gelu_tanh_mul)(const float* gate, const float* up, float* out, int64_t n) = nullptr;
  // x = gelu(x), exact and in its tanh form.
  void (*gelu)(float* x, int64_t n) = nullptr;
  void (*gelu_tanh)(float* x, int64_t n) = nullptr;
  // x = max(x, 0), x = max(x, 0)^2, and x = x / (1 + e^-x).
  void (*relu)(float* x, int64_t n) = nullptr;
  void (*relu2)(float* x, int64_t n) = nullptr;
  void (*silu)(float* x, int64_t n) = nullptr;
  // x = min(max(x, -limit), limit).
  void (*clamp)(float* x, float limit, int64_t n) = nullptr;
  // out = (u + 1) g / (1 + e^-(alpha g)), g: gate, at most limit; u: up, in [-limit, limit]. out may be gate.
  void (*clamped_swiglu)(const float* gate, const float* up, float* out, float limit, float alpha,
                         int64_t n) = nullptr;
  // x = x / (1 + e^-gate).
  void (*sigmoid_mul)(const float* gate, float* x, int64_t n) = nullptr;
  // x *= factor.
  void (*multiply)(const float* factor, float* x, int64_t n) = nullptr;
  // x *= scale.
  void (*scale)(float* x, float scale, int64_t n) = nullptr;
  // x = cap tanh(x / cap).
  void (*soft_cap)(float* x, float cap, int64_t n) = nullptr;
  // (low, high) = (low cos - high sin, high cos + low sin).
  void (*rotate)(float* low, float* high, const float* cos, const float* sin, int64_t n) = nullptr;
};

// One implementation per instruction set.
ElementwiseKernels elementwise_kernels_portable();
ElementwiseKernels elementwise_kernels_avx2();
ElementwiseKernels elementwise_kernels_avx512();

ElementwiseKernels elementwise_kernels(Isa isa);

}  // namespace attend::kernels::cpu
