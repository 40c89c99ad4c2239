// Rotary embeddings of q and k, with the norms of their heads. Activations are f32 on the CPU, f32, f16 or
// bf16 on GPUs; weights f32, f16 or bf16. Positions lie where the stream runs: on the CPU they are checked
// here, on a GPU the caller has checked them.
#pragma once

#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/metadata/kv_index.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Rotates pairs (i, i + rotary_dim / 2) of each head in place by the angle of its token's position (the
// "NeoX" pairing that most of Hugging Face's models use), or `interleaved` pairs (2 i, 2 i + 1) (GPT-J's, of
// GLM). x: [num_tokens, num_heads, head_dim], last stride 1; cos,
// sin: f32 [num_positions, rotary_dim / 2] with the attention factor applied; positions: [num_tokens]. On a
// GPU these three are read early, as by norm_rope().
void rope(const TensorView& x, View<const int32_t> positions, const TensorView& cos, const TensorView& sin,
          Stream& stream, bool interleaved = false);

// What q and k go through before attention, in one launch: each head normalized as rms_norm does, where there
// is a weight, then rotated as rope does. k may be empty. On a GPU positions, cos, sin and the norms' weights
// are read before the kernels launched before on the stream have ended, so none of these may write them: who
// writes them in a kernel (but dynamic_angles(), which lets none begin before it has ended) synchronizes, or
// records an event behind it, first.
struct NormRopeArgs {
  TensorView q = {}, k = {};            // [num_tokens, num_heads, head_dim], last stride 1; changed in place
  TensorView q_norm = {}, k_norm = {};  // [head_dim]; empty: not normalized
  float eps = 1e-6f;
  View<const int32_t> positions = {};  // [num_tokens]
  TensorView cos = {}, sin = {};       // as rope; empty: not rotated
  bool interleaved = false;            // as rope
  // Heads of q and k are normalized once more, without weights, behind RoPE (Llama 4).
  bool norm_after_rope = false;
};
// Shapes, dtypes, devices and, on the CPU, positions; throws Error naming what is wrong.
void check(const NormRopeArgs& args, const Stream& stream);
void norm_rope(const NormRopeArgs& args, Stream& stream);

// Angles of rope type "dynamic", whose base grows with a length ("dynamic NTK", as transformers computes it):
// a token of a prompt takes the prompt's length, a generated one its request's with it, L0 at least. Row t of
// cos and sin belongs to token t:
//   angle = position * base^(-2i / d), base = theta * (factor * length / L0 - (factor - 1))^(d / (d - 2))
// Tokens behind the last request get angles of 0.
struct DynamicAnglesArgs {
  View<const int32_t> positions = {};    // [num_tokens]
  View<const int32_t> cu_seqlen_q = {};  // [num_reqs + 1]
  View<const int32_t> prompt_lens = {};  // [num_reqs]
  double theta = 10000.0, factor = 1.0;
  int original_length = 0;        // L0
  TensorView cos = {}, sin = {};  // f32 [num_tokens, d / 2], contiguous; written
};
// Throws Error(kUnsupported) on the CPU, where whoever steps knows the lengths.
void dynamic_angles(const DynamicAnglesArgs& args, Stream& stream);

// q times 1 + slope log(1 + floor((position + first) / floor_scale)): a temperature that falls with the
// position (arXiv 2501.19399; Llama 4). q: [num_tokens, num_heads, head_dim], last stride 1, in place.
struct QueryTemperature {
  float slope = 0.0f, floor_scale = 0.0f;  // 0: none; both above 0
  int32_t first = 1;                       // what position 0 counts as: 1 (Llama 4), 0 (Ministral 3)
};
void scale_by_position(const TensorView& q, View<const int32_t> positions,
                       const QueryTemperature& temperature, Stream& stream);

// Which of two tables of angles, one behind the other in rows of cos and sin, each token takes (rope type
// "longrope"): the second when the length, as of dynamic_angles(), is more than original_length.
//   rows[t] = positions[t] + (length > original_length ? num_positions : 0)
// Tokens behind the last request get row 0.
struct RopeRowsByLengthArgs {
  View<const int32_t> positions = {};    // [num_tokens]
  View<const int32_t> cu_seqlen_q = {};  // [num_reqs + 1]
  View<const int32_t> prompt_lens = {};  // [num_reqs]
  int32_t original_length = 0;
  int32_t num_positions = 0;  // rows of each table
  View<int32_t> rows = {};    // [num_tokens]; written
};
void rope_rows_by_length(const RopeRowsByLengthArgs& args, Stream& stream);

// Norms of heads, RoPE and the store of K and V as one piece of work.

// norm_rope(rope) and then store_kv(store), whose k is that of `rope`; what is stored has the same bits. On a
// GPU it is one launch, which leaves k itself as it is.
void norm_rope_store(const NormRopeArgs& rope, const StoreKvArgs& store, Stream& stream);

// What lies between the projections of multi-head latent attention and its attention, as one piece of work.

// Activations are f32 on the CPU, f32, f16 or bf16 on GPUs, last stride 1. Positions, cos and sin as of
// norm_rope().
struct LatentNormRopeStoreArgs {
  TensorView kv_a;  // [num_tokens, kv_lora_rank + rope_dim]: changed in place
  TensorView norm;  // [kv_lora_rank]: f32, f16, bf16
  float eps = 1e-6f;
  TensorView q_rope;                   // [num_tokens, num_heads, rope_dim]: changed in place
  View<const int32_t> positions = {};  // [num_tokens]
  TensorView cos = {}, sin = {};       // f32 [num_positions, rope_dim / 2]
  bool interleaved = false;            // as of rope()
  KvDestination to;                    // as of store_mla()
  // Given: it and the rotated q_rope are rounded to e4m3, as attention in fp8 has them; numbers beyond its
  // range become the largest. [num_tokens, num_heads, any]: of the dtype of q_rope, last stride 1.
  TensorView q_latent = {};
};
// kv_a becomes the token's latent row: rms_norm() of the first kv_lora_rank features, the others rotated as a
// head of their own. The row is stored as store_mla() stores it; kv_a then is what the cache has, rounded as
// it is, so that keys made of it now and later are the same. q_rope is rotated. On a GPU it is one launch.
// Throws as the three do.
void latent_norm_rope_store(const LatentNormRopeStoreArgs& args, Stream& stream);
void check(const LatentNormRopeStoreArgs& args, const Stream& stream);

// Row operations that other interfaces require around attention: rows of queries, new keys or results are
// copied from one tensor to another, rotated by their positions (RoPE) and multiplied by factors in device
// memory.

// Angles of the first 2 * pairs elements of a head; the others are not rotated.
struct RowAngles {
  TensorView cos = {}, sin = {};  // [num_positions, pairs]: f32, f16, bf16; last stride 1; empty: no rotation
  bool interleaved = false;       // pairs are (2 i, 2 i + 1); otherwise (i, i + pairs)
  Lengths first_position = {};    // position of each request's first token: `per_request` or `uniform`
  bool same_position = false;     // all tokens of a request have that position; otherwise positions are
                                  // consecutive
};

// Factor data[request * request_stride + head / heads_each * head_stride]; null: none.
struct RowScale {
  const float* data = nullptr;
  int64_t request_stride = 0, head_stride = 0;
  int32_t heads_each = 1;
};

// Factor of a row: the product of the two.
struct RowScales {
  RowScale first = {}, second = {};
};

struct RopeRowsArgs {
  TensorView from = {}, to = {};  // [num_tokens, num_heads, head_dim]: f32, f16, bf16; last stride 1
  int32_t num_reqs = 0;
  // Requests in `from`: `cu` or `uniform`. Tokens after the last request are copied unchanged.
  Lengths seqlens = {};
  RowAngles angles = {};
  RowScales scales = {};
};
// Checks shapes, dtypes and strides. Throws Error with the invalid argument.
void check(const RopeRowsArgs& args);
// to = scales * rotated(from), computed in float32 and rounded once; `to` may be `from`. Positions must be
// rows of cos and sin. On the CPU, throws Error(kInvalidArgument) with the request otherwise. On a GPU, where
// the host does not read positions, a position past the last row uses the angles of the last row.
void apply_rope_rows(const RopeRowsArgs& args, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
