// Rotary position embedding: the cosines and sines for kernels::rope.
#pragma once

#include <vector>

#include "attend/attention/forward_batch.h"
#include "attend/model/config/model_spec.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Fills `frequencies` ([rotary_dim / 2]) with the angle per position of each pair of dimensions. With d =
// rotary_dim and f_i = theta^(-2i / d) (RoFormer, arXiv 2104.09864, section 3.2.2):
//
// kDefault  f_i
// kLinear   f_i / factor (position interpolation, arXiv 2306.15595)
// kDynamic  f_i with theta * (factor * L / L0 - (factor - 1))^(d / (d - 2)), L = max(length, L0) and
//           L0 = original_max_position_embeddings ("dynamic NTK", as transformers computes it)
// kLlama3   f_i / factor where the wavelength 2 pi / f_i is above L0 / low_freq_factor, f_i where it is below
//           L0 / high_freq_factor, in between (1 - s) f_i / factor + s f_i with
//           s = (L0 / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
//           (Llama 3.1; transformers' llama3)
// kLongRope f_i / long_factor_i if length > L0, otherwise f_i / short_factor_i
//           (LongRoPE, arXiv 2402.13753; Phi-3)
// kYarn     (r_i / factor + 1 - r_i) f_i; r_i increases from 0 to 1 between the dimensions with beta_fast and
//           beta_slow rotations within L0 ("NTK-by-parts", arXiv 2309.00071, section 3.2)
//
// Only kDynamic and kLongRope depend on `length`.
void rope_frequencies(const RopeConfig& config, int length, View<float> frequencies);

// Multiplier of cosines and sines. For kYarn it implements the attention temperature (arXiv 2309.00071,
// section 3.4): attention_factor if the config has it, otherwise (0.1 mscale ln(factor) + 1) / (0.1
// mscale_all_dim ln(factor) + 1) if it has both mscale and mscale_all_dim, otherwise 0.1 ln(factor) + 1. For
// kLongRope it is attention_factor or sqrt(1 + ln(factor) / ln(L0)), for all lengths. For other types it
// is 1.
float rope_attention_factor(const RopeConfig& config);

// Rows of cos and sin for the tokens of a step.
struct RopeRows {
  TensorView cos, sin;            // f32 [num_rows, rotary_dim / 2], attention factor applied
  View<const int32_t> positions;  // [num_tokens]: row of each token in cos and sin
  bool interleaved = false;       // RopeConfig::interleaved
};

// Cosines and sines of a model. Angles are rounded to float32 as in transformers, so that results agree for
// long contexts. The error of cos and sin is about one unit in the last place.
//
// The frequencies of kDynamic and kLongRope depend on a length: the prompt's length for a token of the
// prompt, and the length of the request including the token for a generated one. This equals transformers
// with a prefill in one piece and decoding with a cache. The length is a property of the request, so
// batching, chunked prefill and preemption do not change it.
class RopeTable {
 public:
  // Supports positions 0 .. num_positions - 1 and at most max_tokens tokens per step. kDynamic has no table
  // and supports all positions. kLongRope has two consecutive tables.
  RopeTable(const RopeConfig& config, int num_positions, int max_tokens, Device device = {});

  // Bytes that the constructor allocates on the device.
  static double num_bytes(const RopeConfig& config, int num_positions, int max_tokens);

  // Returns the rows for the tokens of `batch`, valid until the next call. Checks positions on the CPU.
  // `prompt_lens`: [num_reqs]; only kDynamic and kLongRope read it, and throw Error(kInvalidArgument) without
  // it. Allocates nothing. On a GPU, kDynamic, kLongRope and axes launch a kernel.
  //
  // `axes`: positions [3, num_tokens], for tables with pair_axes; empty: those of the batch.
  RopeRows rows(const ForwardBatch& batch, View<const int32_t> prompt_lens, Stream& stream,
                View<const int32_t> axes = {});

 private:
  bool on_gpu() const { return cos_.view().device.type == DeviceType::kCuda; }
  int64_t num_positions() const { return cos_.shape(0) / (config_.type == RopeType::kLongRope ? 2 : 1); }
  void check_positions(View<const int32_t> positions) const;
  RopeRows rows_by_length(const ForwardBatch& batch, View<const int32_t> prompt_lens, Stream& stream);
  View<int32_t> token_rows(const ForwardBatch& batch, View<const int32_t> prompt_lens);
  RopeRows rows_from_two_tables(const ForwardBatch& batch, View<const int32_t> prompt_lens, Stream& stream);
  RopeRows rows_by_axes(View<const int32_t> axes, Stream& stream);
  void fill_by_length(const ForwardBatch& batch, View<const int32_t> prompt_lens);

  RopeConfig config_;
  float attention_factor_;
  std::vector<float> frequencies_;
  Tensor cos_, sin_;            // row i: token i for kDynamic, position i otherwise; two tables for kLongRope
  Tensor step_cos_, step_sin_;  // f32 [max_tokens, rotary_dim / 2]: of rows_by_axes()
  Tensor token_row_;  // int32 [max_tokens]: 0, 1, 2, ... for kDynamic; rows of the step for kLongRope
};

}  // namespace attend
