// Conformance suite of the store family.
#pragma once

#include <functional>

#include "attend/kernels/kv_store/store.h"

namespace attend::conformance {

using StoreKvFn = std::function<void(const kernels::StoreKvArgs& args)>;
using StoreMlaFn = std::function<void(const kernels::StoreMlaArgs& args)>;

// The whole pool must equal the reference bit for bit: x / scale rounded in its slot, everything else
// unchanged. Covers all dtypes, scales, layouts and strides, tokens that are not stored, slot maps, and
// values beyond the range of fp8.
void run_store_kv_conformance(const StoreKvFn& kernel);
void run_store_mla_conformance(const StoreMlaFn& kernel);

}  // namespace attend::conformance
