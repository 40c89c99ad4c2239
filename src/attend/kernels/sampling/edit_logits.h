// Changes that requests apply to their logits before sampling: penalties, biases, masks.
#pragma once

#include "attend/kernels/sampling/sampling.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels {

// Words of a mask: bit v % 32 of word v / 32 is set if token v is allowed (xgrammar's layout).
constexpr int64_t mask_words(int64_t vocab_size) { return (vocab_size + 31) / 32; }

// Arrays are in memory that the stream's device can access.
struct LogitEdits {
  View<const int32_t> cu_edits;      // [num_rows + 1]: row i has edits [cu_edits[i], cu_edits[i + 1])
  View<const LogitEdit> edits;       // edits of a row have distinct tokens
  View<float> before;                // [edits.size()]: output, the logits before the edits
  View<const int32_t> mask_row_idx;  // [num_rows]: index of the row's mask, -1: none; empty: no masks
  View<const uint32_t> masks;        // [num_masks, mask_words(vocab_size)]
};

// Applies edits, then the mask to each row of logits, f32 [num_rows, vocab_size]. Logits of tokens that are
// not allowed become -infinity. The caller must have checked ids of edits and masks.
void edit_logits(const TensorView& logits, const LogitEdits& edits, Stream& stream);

}  // namespace attend::kernels
