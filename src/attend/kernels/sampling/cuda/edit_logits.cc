#include "attend/kernels/sampling/cuda/edit_logits_kernel.h"
#include "attend/kernels/sampling/cuda/sampling.h"

namespace attend::kernels::cuda {
namespace {

LogitRows make_rows(const TensorView& logits) {
  return {.logits = logits.as<float>(),
          .row_stride = logits.strides[0],
          .num_rows = static_cast<int32_t>(logits.shape[0]),
          .vocab_size = static_cast<int32_t>(logits.shape[1])};
}

EditParams make_params(const TensorView& logits, const LogitEdits& edits) {
  return {.rows = make_rows(logits),
          .cu_edits = edits.cu_edits.data(),
          .edits = edits.edits.data(),
          .before = edits.before.data(),
          .mask_row_idx = edits.mask_row_idx.empty() ? nullptr : edits.mask_row_idx.data(),
          .masks = edits.masks.data()};
}

}  // namespace

void edit_logits(const TensorView& logits, const LogitEdits& edits, Stream& stream) {
  launch_edit_logits(make_params(logits, edits), stream.handle);
}

void top_logprobs(const TensorView& logits, View<const int32_t> num_top, View<float> log_sums,
                  View<TokenLogprob> top, Stream& stream) {
  launch_top_logprobs({.rows = make_rows(logits),
                       .num_top = num_top.data(),
                       .log_sums = log_sums.data(),
                       .top = top.data(),
                       .max_top = kMaxTopLogprobs},
                      stream.handle);
}

void token_logprobs(const TensorView& logits, const LogitEdits& edits, View<const int32_t> ids,
                    View<const float> log_sums, View<float> logprobs, Stream& stream) {
  launch_token_logprobs({.edited = make_params(logits, edits),
                         .ids = ids.data(),
                         .log_sums = log_sums.data(),
                         .logprobs = logprobs.data()},
                        stream.handle);
}

}  // namespace attend::kernels::cuda
