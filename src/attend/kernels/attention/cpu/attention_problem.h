// AttentionProblem: what the MHA and MLA families ask of the CPU kernel, in one form. MLA is attention with
// one KV head whose V is the front of K, and whose queries come in two parts.
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
  QueryPart q[2];  // the rows of K are [q[0].dim + q[1].dim]; the second part may be empty
  DType q_dtype = DType::kF32;
  PagedRows k, v;
  DType kv_dtype = DType::kF32;
  bool scaled_rows = false;  // K is in scaled latent rows, which are converted to kv_dtype first
  KvIndex index;
  TensorView out, lse;
  QueryBatch batch;
  AttentionMask attention_mask;
  int num_q_heads = 0, num_kv_heads = 0;
  float scale = 1.0f;  // of q.k: k_scale included
  float v_scale = 1.0f;
  float logit_cap = 0.0f;
  float empty_lse = kEmptyLse;   // of a token that sees no key
  const float* sinks = nullptr;  // [num_q_heads]; null: none

  int split_tokens = 0;          // partial results end at multiples of it; 0: at the ends of work items only
  float* partial_out = nullptr;  // [rows, num_q_heads, v.dim]
  float* partial_lse = nullptr;  // [rows, num_q_heads]

  int group() const { return num_q_heads / num_kv_heads; }
  int head_dim_qk() const { return q[0].dim + q[1].dim; }
};

AttentionProblem make_problem(const AttentionArgs& args, const AttentionPlan& plan);
AttentionProblem make_problem(const MlaArgs& args, const AttentionPlan& plan);

}  // namespace attend::kernels::cpu
