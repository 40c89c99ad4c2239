// Rotary position embedding: the cosines and sines by which kernels::rope turns q and k.
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
// kDynamic  f_i with theta * (factor * L / L0 - (factor - 1))^(d / (d - 2)), where L is `length` or L0 =
//           original_max_position_embeddings if that is more ("dynamic NTK", as transformers computes it)
// kLlama3   f_i / factor where the wavelength 2 pi / f_i is above L0 / low_freq_factor, f_i where it is below
//           L0 / high_freq_factor, in between (1 - s) f_i / factor + s f_i with
//           s = (L0 / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
//           (Llama 3.1; transformers' llama3)
// kLongRope f_i / long_factor_i where L is more than L0, else f_i / short_factor_i (LongRoPE, arXiv
// 2402.13753;
//           Phi-3)
// kYarn     (r_i / factor + 1 - r_i) f_i, where r_i rises from 0 to 1 between the dimensions that turn
//           beta_fast and beta_slow times within L0 ("NTK-by-parts", arXiv 2309.00071, section 3.2)
//
// `length` is read by kDynamic and kLongRope alone.
void rope_frequencies(const RopeConfig& config, int length, View<float> frequencies);

// What cosines and sines are multiplied by; it stands for YaRN's attention temperature (arXiv 2309.00071,
// section 3.4): 0.1 ln(factor) + 1, or attention_factor where the config gives it, or
// (0.1 mscale ln(factor) + 1) / (0.1 mscale_all_dim ln(factor) + 1) where it gives both of those. For
// kLongRope, of all lengths, attention_factor or sqrt(1 + ln(factor) / ln(L0)). 1 for the other types.
float rope_attention_factor(const RopeConfig& config);

// Which row of cos and sin each token of a step takes.
struct RopeRows {
  TensorView cos, sin;            // f32 [num_rows, rotary_dim / 2], attention factor applied
  View<const int32_t> positions;  // [num_tokens]: rows of cos and sin
  bool interleaved = false;       // of the config
};

// Cosines and sines of a model. Angles are rounded to float32 as transformers rounds them, so that long
// contexts agree with it; cos and sin themselves are exact to the last bit or so.
//
// The frequencies of kDynamic and kLongRope depend on a length. A token of a prompt takes the prompt's
// length, a generated token the length of the request with it: what transformers does when it prefills in one
// piece and then decodes with a cache. It is a property of the request, so neither the batch nor chunked
// prefill nor a preemption changes it.
class RopeTable {
 public:
  // Positions 0 .. num_positions - 1 may be asked for (any at all of kDynamic, which keeps no table), of at
  // most max_tokens tokens at a time. kLongRope keeps two tables, one behind the other.
  RopeTable(const RopeConfig& config, int num_positions, int max_tokens, Device device = {});

  // Bytes that the constructor allocates on the device.
  static double num_bytes(const RopeConfig& config, int num_positions, int max_tokens);

  // Rows for the tokens of `batch`, whose positions are checked on the CPU. `prompt_lens`: [num_reqs], read
  // by kDynamic and kLongRope alone, which throw Error(kInvalidArgument) without it. Holds until the next
  // call. Allocates nothing; on a GPU these two launch a kernel.
  RopeRows rows(const ForwardBatch& batch, View<const int32_t> prompt_lens, Stream& stream);

 private:
  bool on_gpu() const { return cos_.view().device.type == DeviceType::kCuda; }
  int64_t num_positions() const { return cos_.shape(0) / (config_.type == RopeType::kLongRope ? 2 : 1); }
  void check_positions(View<const int32_t> positions) const;
  RopeRows rows_by_length(const ForwardBatch& batch, View<const int32_t> prompt_lens, Stream& stream);
  View<int32_t> rows_of_tokens(const ForwardBatch& batch, View<const int32_t> prompt_lens);
  RopeRows rows_from_two_tables(const ForwardBatch& batch, View<const int32_t> prompt_lens, Stream& stream);
  void fill_by_length(const ForwardBatch& batch, View<const int32_t> prompt_lens);

  RopeConfig config_;
  float attention_factor_;
  std::vector<float> frequencies_;
  Tensor cos_, sin_;  // kDynamic: row i is of token i; else of position i, kLongRope: twice
  Tensor token_row_;  // int32 [max_tokens]: kDynamic: 0, 1, 2, ...; kLongRope: of the step
};

}  // namespace attend
