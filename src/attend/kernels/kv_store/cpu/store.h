// The CPU implementation of the store family.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/kv_store/store.h"

namespace attend::kernels::cpu {

// As kernels::store_kv and kernels::store_mla, with the instruction set chosen by the caller, who knows that
// the CPU has it. Arguments were checked.
void store_kv(const StoreKvArgs& args, Isa isa);
void store_mla(const StoreMlaArgs& args, Isa isa);

}  // namespace attend::kernels::cpu
