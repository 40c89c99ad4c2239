// Kernels of logit edits and log-probabilities.
#pragma once

#include "attend/kernels/sampling/sampling.h"

namespace attend::kernels::cuda {

struct LogitRows {
  float* logits;  // row r starts at r * row_stride
  int64_t row_stride;
  int32_t num_rows, vocab_size;
};

struct EditParams {
  LogitRows rows;
  const int32_t* cu_edits;  // [num_rows + 1]
  const LogitEdit* edits;
  float* before;
  const int32_t* mask_row_idx;  // [num_rows]; null: no row has a mask
  const uint32_t* masks;        // [num_masks, ceil(vocab_size / 32)]
};

struct TopLogprobParams {
  LogitRows rows;
  const int32_t* num_top;  // [num_rows]
  float* log_sums;         // [num_rows]
  TokenLogprob* top;       // [num_rows, max_top]
  int32_t max_top;
};

struct TokenLogprobParams {
  EditParams edited;
  const int32_t* ids;
  const float* log_sums;
  float* logprobs;
};

// Launch with one CTA per row. `stream` is a cudaStream_t. Throw Error(kDevice) if the launch fails.
void launch_edit_logits(const EditParams& params, void* stream);
void launch_top_logprobs(const TopLogprobParams& params, void* stream);
void launch_token_logprobs(const TokenLogprobParams& params, void* stream);

}  // namespace attend::kernels::cuda
