// KvIndex: maps positions to their K/V in memory. KvView: the K/V with its index.
//
// All pointers are in the memory of the device that runs the kernel. The structs are plain, so kernels
// receive them by value.
#pragma once

#include "attend/kernels/metadata/page_of.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// K and V of one layer. Strides are free except the last, which is 1. The pool selects the layout (head-major
// inside a page on the CPU, token-major on GPUs), and k and v may share storage (MLA).
struct KvView {
  TensorView k;  // [num_pages, page_size, num_kv_heads, head_dim_qk]: f32, f16, bf16, fp8
  TensorView v;  // [num_pages, page_size, num_kv_heads, head_dim_v]: the dtype of k
  KvIndex index;
  // Descales: stored values are x / scale, so a kernel multiplies scores by k_scale and outputs by v_scale.
  float k_scale = 1.0f;
  float v_scale = 1.0f;
};

}  // namespace attend::kernels
#pragma GCC visibility pop
