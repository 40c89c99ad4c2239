// Runs the cases of the conformance suite on the GPU: uploads a case, plans, attends, downloads the results.
#pragma once

#include "tests/kernels/conformance/built_case.h"

namespace attend::testing_cuda {

// AttentionFn and MlaFn of the conformance suite, for the GPU.
void attention_on_gpu(const kernels::AttentionArgs& args, const conformance::BuiltCase& built);
// As the former; fails where another kernel than that of sm90 for many rows would run.
void prefill_on_gpu(const kernels::AttentionArgs& args, const conformance::BuiltCase& built);
void mla_on_gpu(const kernels::MlaArgs& args, const conformance::BuiltCase& built);

}  // namespace attend::testing_cuda
