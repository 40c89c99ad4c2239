// Recurrent layers on a GPU. Arguments are those checked by the functions of gated_delta.h.
#pragma once

#include "attend/kernels/recurrent/gated_delta.h"

namespace attend::kernels::cuda {

void gated_delta_rule(const GatedDeltaArgs& args, Stream& stream);
void gated_norm(const GatedNormArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
