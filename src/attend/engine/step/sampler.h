// Sampler: chooses tokens from the logits of a step, with logit edits, token masks and logprobs as requested.
#pragma once

#include <span>
#include <vector>

#include "attend/engine/request.h"
#include "attend/engine/step/logits_processor.h"
#include "attend/engine/step/step_array.h"
#include "attend/kernels/sampling/logprobs.h"
#include "attend/kernels/sampling/sampling.h"

namespace attend {

// Owner of a row of logits: the row samples the token after the request's drafted token num_ahead - 1, or 0:
// after its last token.
struct SampledRow {
  Request* request;
  int num_ahead = 0;
};

// Without edits, masks and logprobs, a step costs only kernels::sample() and no memory.
class Sampler {
 public:
  Sampler(int vocab_size, Device device);

  // Queues the choice of a token for each row of logits. `sampled` describes the first rows; the others are
  // padding. Rows of a request's draft are adjacent, in the order of num_ahead from 0. Edits and masks of a
  // row of a draft assume that the drafted token and those before it in its tree or chain were accepted;
  // TokenMask::draft() was called for them. If a request's mask throws, the request gets a failure and an
  // arbitrary token.
  void sample(const TensorView& logits, View<const kernels::SamplingRule> rules,
              std::span<const SampledRow> sampled, View<int32_t> tokens, Stream& stream);
  // Returns whether the row's mask allows the token. False if edits ban every token that the mask allows.
  bool allowed(size_t row, int32_t token_id) const;
  // Returns the logprobs of the row's token, by the last sample(), after the stream is synchronized. Empty if
  // the request has no logprobs.
  LogprobsView logprobs(size_t row) const;

  // Queues the logprobs of the given tokens, one per row of logits.
  void score(const TensorView& logits, std::span<const int32_t> tokens, int num_top, Stream& stream);

 private:
  void gather_edits(std::span<const SampledRow> sampled);
  // Mask of a row; empty if all tokens are allowed.
  View<const uint32_t> mask(size_t row) const;
  void gather_masks(std::span<const SampledRow> sampled);
  void queue_tops(const TensorView& logits, Stream& stream);
  kernels::LogitEdits edits() const;

  size_t num_mask_words_;
  StepArray<int32_t> cu_edits_, mask_row_idx_, num_top_, scored_;
  StepArray<kernels::LogitEdit> edits_;
  StepArray<float> before_;
  StepArray<uint32_t> masks_;
  StepArray<float> log_sums_, logprobs_;
  StepArray<TokenLogprob> tops_;
  std::vector<LogitsProcessor> draft_logits_processors_;  // for rows with num_ahead > 0
  std::vector<LogitsProcessor*> logits_processors_;       // one per row, or null
};

}  // namespace attend
