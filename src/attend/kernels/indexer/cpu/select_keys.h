// Selection of keys on the CPU.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/indexer/sparse_mla.h"

namespace attend::kernels::cpu {

// Arguments as in select_keys(). scores: f32 [rows, columns], columns a multiple of kMaxTileKeys.
void select_keys(const SelectKeysArgs& args, const TensorView& scores, const SelectedKeys& to, Isa isa);

}  // namespace attend::kernels::cpu
