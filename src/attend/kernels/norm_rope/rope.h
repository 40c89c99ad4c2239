// Rotary embeddings of q and k, with the norms of their heads. Activations are f32 on the CPU, f32, f16 or
// bf16 on GPUs; weights are f32, f16 or bf16. Positions are in the memory of the stream's device. On the CPU
// they are checked here; on a GPU the caller must have checked them.
#pragma once

#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/metadata/kv_index.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Rotates pairs (i, i + rotary_dim / 2) of each head in place by the angle of its token's position (the NeoX
// pairing of most Hugging Face models) or, if `interleaved`, pairs (2 i, 2 i + 1) (GPT-J, GLM). x:
// [num_tokens, num_heads, head_dim], last stride 1; cos, sin: f32 [num_positions, rotary_dim / 2] with the
// attention factor applied; positions: [num_tokens]. On a GPU the last three are read early, as in
// norm_rope().
void rope(const TensorView& x, View<const int32_t> positions, const TensorView& cos, const TensorView& sin,
          Stream& stream, bool interleaved = false);

// Norms and rotation of q and k before attention, in one launch: each head is normalized like rms_norm if
// there is a weight, then rotated like rope. k may be empty. On a GPU positions, cos, sin and norm weights
// are read before earlier kernels of the stream have finished, so these must not write them. A caller that
// writes them in a kernel must synchronize, or record an event after it, first. The exceptions are
// dynamic_angles() and axis_angles(), which do not allow later kernels to start early.
struct NormRopeArgs {
  TensorView q = {}, k = {};            // [num_tokens, num_heads, head_dim], last stride 1; changed in place
  TensorView q_norm = {}, k_norm = {};  // [head_dim]; empty: no norm
  float eps = 1e-6f;
  View<const int32_t> positions = {};  // [num_tokens]
  TensorView cos = {}, sin = {};       // as in rope(); empty: no rotation
  bool interleaved = false;            // as in rope()
  // Normalizes heads of q and k after RoPE instead of before it, without weights if they are empty (Llama 4).
  bool norm_after_rope = false;
  // For norm_rope_store(): normalizes heads of the stored v without weights.
  bool norm_v = false;
  // Memory for normalized v on the CPU, with the shape of v; it may be v, unless v is k.
  TensorView v_out = {};
};
// Checks shapes, dtypes, devices and, on the CPU, positions. Throws Error with the invalid argument.
void check(const NormRopeArgs& args, const Stream& stream);
void norm_rope(const NormRopeArgs& args, Stream& stream);

// Angles of rope type "dynamic", with a base that grows with a length ("dynamic NTK", as in transformers).
// The length of a prompt token is that of the prompt; the length of a generated token is that of its request
// including it; both are at least L0. Row t of cos and sin belongs to token t:
//   angle = position * base^(-2i / d), base = theta * (factor * length / L0 - (factor - 1))^(d / (d - 2))
// Tokens after the last request get angles of 0.
struct DynamicAnglesArgs {
  View<const int32_t> positions = {};    // [num_tokens]
  View<const int32_t> cu_seqlen_q = {};  // [num_reqs + 1]
  View<const int32_t> prompt_lens = {};  // [num_reqs]
  double theta = 10000.0, factor = 1.0;
  int original_length = 0;        // L0
  TensorView cos = {}, sin = {};  // f32 [num_tokens, d / 2], contiguous; outputs
};
// Throws Error(kUnsupported) on the CPU, where the caller computes angles from the lengths.
void dynamic_angles(const DynamicAnglesArgs& args, Stream& stream);

// Angles of positions with several axes (M-RoPE, arXiv 2409.12191; rows and columns of images). Pair i of row
// t of cos and sin has the table's angle of position positions[pair_axes[i] * num_tokens + t].
struct AxisAnglesArgs {
  View<const int32_t> positions = {};         // [num_axes * num_tokens]
  View<const uint8_t> pair_axes = {};         // [pairs], on the host; at most 256 pairs
  TensorView table_cos = {}, table_sin = {};  // f32 [num_positions, pairs], contiguous
  TensorView cos = {}, sin = {};              // f32 [num_tokens, pairs], contiguous; outputs
};
// Checks positions on the CPU.
void axis_angles(const AxisAnglesArgs& args, Stream& stream);

// Multiplies q by 1 + slope log(1 + floor((position + first) / floor_scale)), a temperature that depends on
// the position (arXiv 2501.19399; Llama 4). q: [num_tokens, num_heads, head_dim], last stride 1, in place.
struct QueryTemperature {
  float slope = 0.0f, floor_scale = 0.0f;  // 0: none; both above 0
  int32_t first = 1;                       // offset of position 0: 1 (Llama 4), 0 (Ministral 3)
};
void scale_by_position(const TensorView& q, View<const int32_t> positions,
                       const QueryTemperature& temperature, Stream& stream);

// Selects one of two tables of angles for each token (rope type "longrope"). The tables are consecutive rows
// of cos and sin. The second one applies if the length, defined as in dynamic_angles(), is more than
// original_length.
//   rows[t] = positions[t] + (length > original_length ? num_positions : 0)
// Tokens after the last request get row 0.
struct RopeRowsByLengthArgs {
  View<const int32_t> positions = {};    // [num_tokens]
  View<const int32_t> cu_seqlen_q = {};  // [num_reqs + 1]
  View<const int32_t> prompt_lens = {};  // [num_reqs]
  int32_t original_length = 0;
  int32_t num_positions = 0;  // rows of each table
  View<int32_t> rows = {};    // [num_tokens]; output
};
void rope_rows_by_length(const RopeRowsByLengthArgs& args, Stream& stream);

// Norms of heads, RoPE and the store of K and V in one operation.

// norm_rope(rope) followed by store_kv(store), where k of the store is that of `rope`; stored values have the
// same bits. With norm_v, v of the store may be k, from before its norm. On a GPU it is one launch, which
// does not modify k itself.
void norm_rope_store(const NormRopeArgs& rope, const StoreKvArgs& store, Stream& stream);

// Operations between the projections of multi-head latent attention and its attention, fused.

// Activations are f32 on the CPU, f32, f16 or bf16 on GPUs, last stride 1. Positions, cos and sin are as in
// norm_rope().
struct LatentNormRopeStoreArgs {
  TensorView kv_a;  // [num_tokens, kv_lora_rank + rope_dim]; changed in place
  TensorView norm;  // [kv_lora_rank]: f32, f16, bf16
  float eps = 1e-6f;
  TensorView q_rope;                   // [num_tokens, num_heads, rope_dim]; changed in place
  View<const int32_t> positions = {};  // [num_tokens]
  TensorView cos = {}, sin = {};       // f32 [num_positions, rope_dim / 2]; empty: no rotation
  bool interleaved = false;            // as in rope()
  KvDestination to;                    // as in store_mla()
  // If set, it and the rotated q_rope are rounded to e4m3, the query dtype of fp8 attention; values beyond
  // its range saturate. [num_tokens, num_heads, any]: dtype of q_rope, last stride 1.
  TensorView q_latent = {};
};
// Converts kv_a to the token's latent row: rms_norm() of the first kv_lora_rank features; the others are
// rotated like a separate head. The row is stored like store_mla(). kv_a then holds the values of the cache,
// with the same rounding, so that keys computed from it now and later are equal. q_rope is rotated. On a GPU
// it is one launch. Throws the errors of rms_norm(), rope() and store_mla().
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

// Factor data[request * request_stride + head / heads_per_scale * head_stride]; null: none.
struct RowScale {
  const float* data = nullptr;
  int64_t request_stride = 0, head_stride = 0;
  int32_t heads_per_scale = 1;
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
