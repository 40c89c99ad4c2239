// KvIndex: how a kernel finds the K/V of a position, and KvView: the K/V itself.
//
// All pointers lie in the memory of the device that runs the kernel. Plain structs: they cross to the device
// as they are.
#pragma once

#include "attend/kernels/metadata/page_of.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// K and V of one layer. Strides are free but for the last, which is 1; the pool chooses the layout
// (head-major inside a page on the CPU, token-major on GPUs) and may share storage between k and v (MLA).
struct KvView {
  TensorView k;  // [num_pages, page_size, num_kv_heads, head_dim_qk]: f32, f16, bf16, fp8
  TensorView v;  // [num_pages, page_size, num_kv_heads, head_dim_v]: the dtype of k
  KvIndex index;
  // Descales: what is stored is x / scale, so that a kernel multiplies scores by k_scale and outputs by
  // v_scale.
  float k_scale = 1.0f;
  float v_scale = 1.0f;
};

}  // namespace attend::kernels
#pragma GCC visibility pop
