// Two policies of multiplying and accumulating. A policy M defines a step of the inner dimension (4 bytes:
// one f32, or a pair of bf16), and how K, V and softmax weights are converted to steps. Sums are always
// float32.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cpu/simd.h"

namespace attend::kernels::cpu {
namespace {

// Converts everything to float32, with one fused multiply-add per element: exact products of any two types.
template <class S>
struct F32Mac {
  using Simd = S;
  using F32 = typename S::F32;
  using Step = float;
  using StepVec = F32;
  static constexpr int kElements = 1;  // elements per step

  static StepVec load(const Step* p) { return S::load(p); }
  static void store(Step* p, StepVec x) { S::store(p, x); }
  static StepVec broadcast(const Step* p) { return S::set1(*p); }
  static StepVec zero() { return S::zero(); }
  // Makes products read x from a register, if S requests this.
  static void keep_in_register(StepVec& x) {
    if constexpr (requires { S::keep_in_register(x); }) S::keep_in_register(x);
  }
  static F32 mac(StepVec a, StepVec b, F32 sum) { return S::fma(a, b, sum); }
  static void transpose(StepVec (&rows)[S::kLanes]) { S::transpose(rows); }

  // Loads kLanes steps of a row from its first n elements, padded with zeros.
  template <class T>
  static StepVec load_steps(const T* row, int n) {
    return n == S::kLanes ? S::load(row) : S::load_first(row, n);
  }
  // Loads steps across kElements rows: lane i holds element i of each row. Null rows are zeros.
  template <class T>
  static StepVec load_across(const T* const (&rows)[kElements], int n) {
    return rows[0] == nullptr ? zero() : load_steps(rows[0], n);
  }
  // Unpacked layout (skinny.h): a block is kBlock elements of a row, of which the first n are read.
  static constexpr int kBlock = 2 * S::kLanes, kBlockVecs = 2, kColumnVecs = 2;
  template <class T>
  static void load_block(const T* row, int n, StepVec (&steps)[kBlockVecs]) {
    if (n >= kBlock)
      S::load_block(row, steps[0], steps[1]);
    else
      S::load_block_first(row, n, steps[0], steps[1]);
  }
  // Loads the block at element d of each of kElements rows as the steps of kBlock columns. Null rows are
  // zeros.
  template <class T>
  static void load_block_across(const char* const (&rows)[kElements], int d, int n,
                                StepVec (&steps)[kColumnVecs]) {
    load_block(reinterpret_cast<const T*>(rows[0]) + d, n, steps);
  }
  // Order of a query's steps and of an output row's columns in a block.
  template <class T>
  static void order_query(StepVec (&steps)[kBlockVecs]) {
    S::template to_block_order<T>(steps[0], steps[1]);
  }
  template <class T>
  static void order_columns(F32 (&columns)[kColumnVecs]) {
    S::template to_block_order<T>(columns[0], columns[1]);
  }
  template <class T>
  static void restore_columns(F32 (&columns)[kColumnVecs]) {
    S::template from_block_order<T>(columns[0], columns[1]);
  }

  // Stores kElements vectors of P as kLanes steps.
  static void store_p(Step* to, const F32 (&p)[kElements]) { S::store(to, p[0]); }
};

}  // namespace
}  // namespace attend::kernels::cpu
