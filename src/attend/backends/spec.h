// A backend as data: one class (kernel_backend.h) runs a kernel family by such a spec.
#pragma once

#include "attend/kernels/attention_plan.h"
#include "attend/kernels/kv_index.h"

namespace attend {

enum class KernelChoice : uint8_t {
  kReference,  // float64, one element after another
  kFast,       // the best that the device has
};

struct BackendSpec {
  kernels::KvIndexKind index = kernels::KvIndexKind::kRequestRows;
  KernelChoice kernel = KernelChoice::kFast;
  kernels::SplitRule split_rule = kernels::SplitRule::kBalanced;
  int split_tokens = 256;  // kFixed, and every rule in deterministic mode
};

}  // namespace attend
