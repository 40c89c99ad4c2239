// Sampler: from the logits of a step to its tokens, with what requests ask to be done on the way.
#pragma once

#include <span>
#include <vector>

#include "attend/engine/request.h"
#include "attend/engine/step/logits_processor.h"
#include "attend/engine/step/step_array.h"
#include "attend/kernels/sampling/logprobs.h"
#include "attend/kernels/sampling/sampling.h"

namespace attend {

// Whose token a row of logits gives: the one behind the first `num_ahead` of its draft.
struct SampledRow {
  Request* request;
  int num_ahead = 0;
};

// Steps whose requests want neither edits, masks nor logprobs cost what kernels::sample() costs, and no
// memory.
class Sampler {
 public:
  Sampler(int vocab_size, Device device);

  // Queues the choice of a token for each row of logits. `sampled`: of the first rows; the others are
  // padding; rows of a request's draft follow one another, from the one ahead of none on. Logits are changed
  // where requests ask for that, for a row of a draft as if what is before it had been chosen. A request
  // whose mask throws gets a failure, and any token; one with a mask has no draft.
  void sample(const TensorView& logits, View<const kernels::SamplingRule> rules,
              std::span<const SampledRow> sampled, View<int32_t> tokens, Stream& stream);
  // Whether the row's mask allows the token. Not, where edits leave none of those that it allows.
  bool allowed(size_t row, int32_t token_id) const;
  // Of the row's token, by the last sample(), once the stream has caught up; nothing, if its request asked
  // for none.
  LogprobsView logprobs(size_t row) const;

  // Queues the logprobs of given tokens, one per row of logits.
  void score(const TensorView& logits, std::span<const int32_t> tokens, int num_top, Stream& stream);

 private:
  void gather_edits(std::span<const SampledRow> sampled);
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
  std::vector<LogitsProcessor> draft_logits_processors_;   // of rows with a token of a draft before them
  std::vector<const LogitsProcessor*> logits_processors_;  // of each row, or null
};

}  // namespace attend
