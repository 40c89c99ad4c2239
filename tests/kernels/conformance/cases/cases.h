// The cases that every implementation of a kernel family runs: a sample of the cross product of what the
// design asks for, the same in every run.
#pragma once

#include <vector>

#include "tests/kernels/conformance/cases/attention_case.h"

namespace attend::conformance {

// The attention family: page edges, ragged batches, windows to either side, chunks and trees at their edges,
// bidirectional and cross attention, padding, long K/V, long prefill. Each of these families draws its
// lengths; everything else (head dims, groups, dtypes, index, pages, layout, splits, scales, cap, sinks,
// spread) is dealt so that every value comes as often as every other.
std::vector<AttentionCase> conformance_cases();

// For run_page_order(): some of the above whose K/V lie in several pages.
std::vector<AttentionCase> page_order_cases();

// The MLA family: 576/512 with 16 and 128 heads, and small ranks.
std::vector<AttentionCase> mla_conformance_cases();

// Some of the above over latent rows that say how they are scaled.
std::vector<AttentionCase> scaled_row_cases();

// For run_batch_invariance(): fixed splits, causal.
std::vector<AttentionCase> batch_invariance_cases();

// The cases in dtypes that the tensor cores of GPUs take.
std::vector<AttentionCase> on_tensor_cores(std::vector<AttentionCase> cases);

// The cases with queries, keys and values of e4m3, every other one with descales of heads.
std::vector<AttentionCase> in_e4m3(std::vector<AttentionCase> cases);

}  // namespace attend::conformance
