// Choosing tokens on a GPU. As the functions of sampling.h, which check shapes and call these.
#pragma once

#include "attend/kernels/sampling/sampling.h"

namespace attend::kernels::cuda {

void argmax(const TensorView& logits, View<int32_t> ids, Stream& stream);
void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids, Stream& stream);
void probabilities(const TensorView& logits, View<const SamplingRule> rules, const TensorView& out,
                   Stream& stream);

}  // namespace attend::kernels::cuda
