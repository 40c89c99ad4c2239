// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/common/refuse_gpu.h"
#include "attend/kernels/sampling/cuda/edit_logits.h"
#include "attend/kernels/sampling/cuda/sampling.h"

namespace attend::kernels::cuda {

void argmax(const TensorView&, View<int32_t>, Stream&) { refuse("argmax"); }
void sample(const TensorView&, View<const SamplingRule>, View<int32_t>, Stream&) { refuse("sample"); }
void probabilities(const TensorView&, View<const SamplingRule>, const TensorView&, Stream&) {
  refuse("probabilities");
}
void edit_logits(const TensorView&, const LogitEdits&, Stream&) { refuse("edit_logits"); }
void top_logprobs(const TensorView&, View<const int32_t>, View<float>, View<TokenLogprob>, Stream&) {
  refuse("top_logprobs");
}
void token_logprobs(const TensorView&, const LogitEdits&, View<const int32_t>, View<const float>, View<float>,
                    Stream&) {
  refuse("token_logprobs");
}

}  // namespace attend::kernels::cuda
