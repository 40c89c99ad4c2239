// Code shared by kernels over rows, independent of the instruction set.
#pragma once

#include <cstdint>

#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {
namespace {

// Calls fn(first, count) for each vector of a row of n elements; only the last may be partial.
template <class S, class Fn>
void for_each_vector(int64_t n, const Fn& fn) {
  int64_t i = 0;
  for (; i + S::kLanes <= n; i += S::kLanes) fn(i, S::kLanes);
  if (i < n) fn(i, static_cast<int>(n - i));
}

// Calls fn with the typed elements of a weight: f32, f16 or bf16.
template <class Fn>
void visit_weight(const void* weight, DType dtype, const Fn& fn) {
  if (dtype == DType::kF32) return fn(static_cast<const float*>(weight));
  if (dtype == DType::kF16) return fn(static_cast<const F16*>(weight));
  fn(static_cast<const BF16*>(weight));
}

}  // namespace
}  // namespace attend::kernels::cpu
