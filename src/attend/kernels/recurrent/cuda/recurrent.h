// Recurrent layers on a GPU. Arguments are those checked by the functions of the contracts.
#pragma once

#include "attend/kernels/recurrent/recurrent.h"

namespace attend::kernels::cuda {

void causal_conv(const CausalConvArgs& args, Stream& stream);
void gated_delta_rule(const GatedDeltaArgs& args, Stream& stream);
void gated_norm(const GatedNormArgs& args, Stream& stream);
bool delta_token(const DeltaTokenArgs& args, Stream& stream);
void selective_scan(const SelectiveScanArgs& args, Stream& stream);
void grouped_gated_norm(const GroupedGatedNormArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
