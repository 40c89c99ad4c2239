#include <limits>

#include "attend/base/parallel.h"
#include "attend/kernels/sampling/cpu/sampling.h"

namespace attend::kernels::cpu {
namespace {

float edited(float logit, const LogitEdit& edit) {
  const float scaled = logit > 0.0f ? logit / edit.repetition : logit * edit.repetition;
  return scaled + edit.offset;
}

View<const uint32_t> row_mask(const LogitEdits& edits, size_t row, int64_t vocab_size) {
  if (edits.mask_row_idx.empty() || edits.mask_row_idx[row] < 0) return {};
  const auto words = static_cast<size_t>(mask_words(vocab_size));
  return edits.masks.subspan(static_cast<size_t>(edits.mask_row_idx[row]) * words, words);
}

}  // namespace

void edit_logits(const TensorView& logits, const LogitEdits& edits) {
  const int64_t vocab_size = logits.shape[1];
  parallel_for_rows(logits.shape[0], vocab_size, [&](int64_t row_idx) {
    const auto i = static_cast<size_t>(row_idx);
    float* const row = logits.as<float>() + row_idx * logits.strides[0];
    for (auto e = static_cast<size_t>(edits.cu_edits[i]); e < static_cast<size_t>(edits.cu_edits[i + 1]);
         ++e) {
      float& logit = row[edits.edits[e].token_id];
      edits.before[e] = logit;
      logit = edited(logit, edits.edits[e]);
    }
    const View<const uint32_t> mask = row_mask(edits, i, vocab_size);
    if (mask.empty()) return;
    for (int64_t v = 0; v < vocab_size; ++v)
      if ((mask[static_cast<size_t>(v / 32)] >> (v % 32) & 1) == 0)
        row[v] = -std::numeric_limits<float>::infinity();
  });
}

void token_logprobs(const TensorView& logits, const LogitEdits& edits, View<const int32_t> ids,
                    View<const float> log_sums, View<float> logprobs) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) continue;
    float logit = logits.as<const float>()[static_cast<int64_t>(i) * logits.strides[0] + ids[i]];
    for (auto e = static_cast<size_t>(edits.cu_edits[i]); e < static_cast<size_t>(edits.cu_edits[i + 1]); ++e)
      if (edits.edits[e].token_id == ids[i]) logit = edits.before[e];
    logprobs[i] = logit - log_sums[i];
  }
}

}  // namespace attend::kernels::cpu
