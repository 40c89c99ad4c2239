// What requests ask to be done to their logits before a token is chosen: penalties, biases, masks.
#pragma once

#include "attend/kernels/sampling/sampling.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels {

// Words of a mask: bit v % 32 of word v / 32 is set if token v may be chosen (as xgrammar lays them out).
constexpr int64_t mask_words(int64_t vocab_size) { return (vocab_size + 31) / 32; }

// Arrays lie where the stream's device reads and writes them.
struct LogitEdits {
  View<const int32_t> cu_edits;      // [num_rows + 1]: row i has edits [cu_edits[i], cu_edits[i + 1])
  View<const LogitEdit> edits;       // a row's have different tokens
  View<float> before;                // [edits.size()]: the logits that they change, as they were
  View<const int32_t> mask_row_idx;  // [num_rows]: index of the row's mask, -1: none; empty: no row has one
  View<const uint32_t> masks;        // [num_masks, mask_words(vocab_size)]
};

// Applies to each row of logits, f32 [num_rows, vocab_size], its edits, then its mask: logits of tokens that
// may not be chosen become -infinity. Ids of edits were checked by the caller, masks too.
void edit_logits(const TensorView& logits, const LogitEdits& edits, Stream& stream);

}  // namespace attend::kernels
