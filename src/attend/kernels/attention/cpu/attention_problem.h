// AttentionProblem: input of the CPU kernel for the MHA and MLA families. MLA is attention with one KV head,
// with V as the leading columns of K, and queries in two parts.
#pragma once

#include <cstdint>

#include "attend/kernels/attention/attention.h"

namespace attend::kernels::cpu {

// [num_tokens, num_q_heads, dim], last stride 1. Strides count elements.
struct QueryPart {
  const void* data = nullptr;
  int dim = 0;
  int64_t token_stride = 0, head_stride = 0;
};

// [num_pages, page_size, num_kv_heads, dim], last stride 1. Strides count bytes.
struct PagedRows {
  const char* data = nullptr;
  int dim = 0;
  int64_t page_stride = 0, token_stride = 0, head_stride = 0;
};

struct AttentionProblem {
  QueryPart q[2];  // rows of K are [q[0].dim + q[1].dim]; the second part may be empty
  DType q_dtype = DType::kF32;
  PagedRows k, v;
  DType kv_dtype = DType::kF32;
  bool scaled_rows = false;  // K consists of scaled latent rows, which are converted to kv_dtype first
  KvIndex index;
  TensorView out, lse;
  QueryBatch batch;
  AttentionMask attention_mask;
  int num_q_heads = 0, num_kv_heads = 0;
  float scale = 1.0f;  // factor of q.k, including k_scale
  float v_scale = 1.0f;
  float logit_cap = 0.0f;
  float empty_lse = kEmptyLse;   // LSE of a token without keys
  const float* sinks = nullptr;  // [num_q_heads]; null: none

  int split_tokens = 0;          // partial results end at multiples of it; 0: only at the ends of work items
  float* partial_out = nullptr;  // [rows, num_q_heads, v.dim]
  float* partial_lse = nullptr;  // [rows, num_q_heads]

  int group() const { return num_q_heads / num_kv_heads; }
  int head_dim_qk() const { return q[0].dim + q[1].dim; }
};

AttentionProblem make_problem(const AttentionArgs& args, const AttentionPlan& plan);
AttentionProblem make_problem(const MlaArgs& args, const AttentionPlan& plan);

}  // namespace attend::kernels::cpu
