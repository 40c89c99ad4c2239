// Recurrent layers on the CPU. Arguments as described in recurrent.h; their functions
// check them and call these.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/recurrent/recurrent.h"

namespace attend::kernels::cpu {

void causal_conv(const CausalConvArgs& args, Isa isa);
void gated_delta_rule(const GatedDeltaArgs& args, Isa isa);
void selective_scan(const SelectiveScanArgs& args, Isa isa);
void grouped_gated_norm(const GroupedGatedNormArgs& args, Isa isa);
void gated_norm(const GatedNormArgs& args, Isa isa);

}  // namespace attend::kernels::cpu
