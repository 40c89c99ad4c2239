// The MLA family: absorbed multi-head latent attention. One latent row per token serves as K (all of it) and
// as V (its first kv_lora_rank elements) of every query head.
#pragma once

#include "attend/kernels/attention/attention_batch.h"
#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/metadata/kv_index.h"
#include "attend/tensor/stream.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

struct MlaArgs {
  TensorView q;       // [num_tokens, num_q_heads, kv_lora_rank]: q_nope times W_UK; f32, f16, bf16
  TensorView q_rope;  // [num_tokens, num_q_heads, rope_dim]: dtype of q
  TensorView out;     // [num_tokens, num_q_heads, kv_lora_rank]: the caller applies W_UV; f32, f16, bf16
  TensorView lse;     // [num_tokens, num_q_heads]: f32, natural log; empty: not wanted
  // [num_pages, page_size, kv_lora_rank + rope_dim]: f32, f16, bf16, fp8; last stride 1; or scaled rows
  // (kv_store/scaled_rows.h), whose numbers may be rounded to 16 bits on their way.
  TensorView latent;
  KvIndex index;
  float scale_kv = 1.0f;  // descale of the latent row; K and V share it because they share the row
  QueryBatch batch;
  Visibility visibility;
  ScoreRule score;
  float empty_lse = kEmptyLse;  // LSE of a token that sees no key; FlashMLA has +inf
  bool prefix_ready = false;    // attention_batch.h
};

// As check(AttentionArgs). kv_lora_rank is a multiple of 8 up to 512, rope_dim a multiple of 8 up to 64, or
// 0.
void check(const MlaArgs& args);

// As attention(): num_kv_heads of the plan is 1, head_dim_v is kv_lora_rank.
void mla(const MlaArgs& args, AttentionPlan& plan, Stream& stream);

namespace reference {
void mla(const MlaArgs& args);
}

}  // namespace attend::kernels
#pragma GCC visibility pop
