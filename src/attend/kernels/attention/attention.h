// The attention family: softmax(scale * q k^T) v over paged or contiguous K/V of ragged batches, with grouped
// query heads, windows, chunks, caps, sinks, tree masks, fp8 K/V and LSE.
#pragma once

#include "attend/kernels/attention/attention_batch.h"
#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/metadata/kv_index.h"
#include "attend/tensor/device.h"
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

// Descales of one operand per request and KV head, float32 on the device and not negative: element (r, h) is
// data[r * request_stride + h * head_stride].
struct HeadScales {
  const float* data = nullptr;  // null: 1
  int64_t request_stride = 0, head_stride = 0;
};

// Keys and values that attention() stores in the cache before it reads them: n per request, after the
// batch.seqlen_kv keys that are already stored. Positions from `capacity` on are not stored.
struct NewKeys {
  TensorView k;  // [num_reqs * n, num_kv_heads, head_dim_qk], of the cache's dtype; empty: none
  TensorView v;  // [num_reqs * n, num_kv_heads, head_dim_v]
  int32_t capacity = 0;
};

struct AttentionArgs {
  TensorView q;    // [num_tokens, num_q_heads, head_dim_qk]: f32, f16, bf16, or on a GPU fp8_e4m3 with K/V of
                   // that dtype; last stride 1
  TensorView out;  // [num_tokens, num_q_heads, head_dim_v]: f32, f16, bf16; last stride 1
  TensorView lse;  // [num_tokens, num_q_heads]: f32, natural log, sinks excluded; empty: not written
  KvView kv;       // num_q_heads is a multiple of num_kv_heads; query head h reads KV head h / (num_q_heads /
                   // num_kv_heads)
  QueryBatch batch;
  AttentionMask attention_mask;
  ScoreRule score;
  bool prefix_ready = false;  // attention_batch.h
  // Factors of scores (q_scales, k_scales) and outputs (v_scales), in addition to score.scale, kv.k_scale and
  // kv.v_scale. Supported with fp8_e4m3 q and if has_head_descales() returns true. With fp8_e4m3 q, kernels
  // may also multiply probabilities in fp8_e4m3.
  HeadScales q_scales = {}, k_scales = {}, v_scales = {};
  // Supported only if stores_new_keys() returns true. batch.seqlen_kv does not count them, and requests do
  // not share the pages in which they are stored.
  NewKeys new_keys = {};
};

// Checks shapes, dtypes and strides of `args`. Throws Error(kInvalidArgument or kUnsupported) with the name
// of the wrong argument. Head dims are multiples of 8 up to 256, or 512/512 or 576/512; for the last, GPUs
// use the row kernel. Device arrays are not read.
void check(const AttentionArgs& args);

// Writes args.out and args.lse for every token, including padding. `plan` was made for this batch and these
// limits; its work items assign work to threads. Calls check() first. Runs on stream.device.
void attention(const AttentionArgs& args, AttentionPlan& plan, Stream& stream);

// Returns true if attention() stores args.new_keys itself, after plan_inline() of `plan` for args.batch, in
// which every request has queries. This holds for few 16-bit keys on a GPU if calls derive their plan.
// Otherwise the caller stores them first with append_keys() (kv_store/batch_arrays.h).
bool stores_new_keys(const AttentionArgs& args, const AttentionPlan& plan);

// Returns true if attention() applies args.q_scales, k_scales and v_scales to 16-bit q, with `plan` planned
// for args.batch. This holds for fp8 K/V on a GPU with few rows per request or, on Hopper, many rows.
bool has_head_descales(const AttentionArgs& args, const AttentionPlan& plan);

// Returns true if attention() on `device` multiplies queries, keys and values in fp8_e4m3, for `num_rows`
// rows (max_seqlen_q new tokens with the query heads of one KV head), without fixed splits and without a tree
// mask. Otherwise results for such queries are correct, but slower than with 16 bits.
bool multiplies_e4m3(Device device, int64_t head_dim_qk, int64_t head_dim_v, int64_t num_rows);

// Specification: one query, one head, one key after another, in float64, on host memory.
namespace reference {
void attention(const AttentionArgs& args);
}

// The MLA family: absorbed multi-head latent attention. One latent row per token serves as K (all of it) and
// as V (its first kv_lora_rank elements) of every query head.

struct MlaArgs {
  TensorView q;       // [num_tokens, num_q_heads, kv_lora_rank]: q_nope times W_UK; f32, f16, bf16
  TensorView q_rope;  // [num_tokens, num_q_heads, rope_dim]: dtype of q
  TensorView out;     // [num_tokens, num_q_heads, kv_lora_rank]: the caller applies W_UV; f32, f16, bf16
  TensorView lse;     // [num_tokens, num_q_heads]: f32, natural log; empty: not written
  // [num_pages, page_size, kv_lora_rank + rope_dim]: f32, f16, bf16, fp8; last stride 1; or scaled rows
  // (kv_store/selected_rows.h), the values of which may be rounded to 16 bits when they are loaded.
  TensorView latent;
  KvIndex index;
  float scale_kv = 1.0f;  // descale of the latent row; K and V share it because they share the row
  QueryBatch batch;
  AttentionMask attention_mask;
  ScoreRule score;
  float empty_lse = kEmptyLse;  // LSE of a token that sees no key; FlashMLA has +inf
  bool prefix_ready = false;    // attention_batch.h
};

// Same as check(AttentionArgs). kv_lora_rank is a multiple of 8 up to 512, rope_dim a multiple of 8 up to 64,
// or 0.
void check(const MlaArgs& args);

// See attention(): num_kv_heads of the plan is 1, head_dim_v is kv_lora_rank.
void mla(const MlaArgs& args, AttentionPlan& plan, Stream& stream);

namespace reference {
void mla(const MlaArgs& args);
}

// Merging partial attention results by their LSE (cascade, splits, chunked prefix).
//
// With m = max(a, b), wa = e^(a - m), wb = e^(b - m): out = (out_a wa + out_b wb) / (wa + wb), lse = m +
// ln(wa + wb). Two empty rows (LSE -inf) stay empty: out 0, LSE -inf. The output of an empty part is not
// read, and an LSE of +inf, other libraries' mark of an empty row, counts as -inf.

struct MergeArgs {
  TensorView out_a, out_b;  // [num_tokens, num_q_heads, head_dim]: f32, f16, bf16
  TensorView lse_a, lse_b;  // [num_tokens, num_q_heads]: f32, natural log
  TensorView out;           // dtype and shape of out_a; may be out_a
  TensorView lse;           // shape of lse_a; may be lse_a; empty: not written
};
// Checks shapes and dtypes. Throws Error with the name of the wrong argument.
void check(const MergeArgs& args);
void merge(const MergeArgs& args, Stream& stream);

struct MergeSplitsArgs {
  TensorView partial_out;        // [num_splits, num_tokens, num_q_heads, head_dim]: f32
  TensorView partial_lse;        // [num_splits, num_tokens, num_q_heads]: f32
  View<const float> sinks = {};  // [num_q_heads]; empty: none
  TensorView out;                // [num_tokens, num_q_heads, head_dim]: f32, f16, bf16
  TensorView lse;                // [num_tokens, num_q_heads]: f32, sinks excluded; empty: not written
};
void check(const MergeSplitsArgs& args);
// Merges from left to right, split 0 first.
void merge_splits(const MergeSplitsArgs& args, Stream& stream);

namespace reference {
void merge(const MergeArgs& args);
void merge_splits(const MergeSplitsArgs& args);
}  // namespace reference

}  // namespace attend::kernels

#pragma GCC visibility pop
