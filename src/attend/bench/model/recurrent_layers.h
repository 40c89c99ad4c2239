// Times the kernels of layers with a recurrent state, for the lower bound of a prefill.
#pragma once

#include "attend/model/config/model_spec.h"
#include "attend/tensor/device.h"

namespace attend::bench {

// Returns the microseconds of the convolutions, recurrences and gated norms of all layers, for one prompt of
// `num_tokens` tokens on the stream's GPU, with activations of this dtype.
double time_recurrent_layers(const ModelSpec& spec, DType dtype, int num_tokens, Stream& stream);

}  // namespace attend::bench
