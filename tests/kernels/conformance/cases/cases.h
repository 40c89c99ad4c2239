// Cases that every implementation of a kernel family runs: a deterministic sample of the cross product of
// features.
#pragma once

#include <vector>

#include "tests/kernels/conformance/cases/attention_case.h"

namespace attend::conformance {

// Attention family: page boundaries, ragged batches, windows to both sides, chunks and trees at their edges,
// bidirectional and cross attention, padding, long K/V, long prefill. Each of these draws its lengths. All
// other fields (head dims, groups, dtypes, index, pages, layout, splits, scales, cap, sinks, spread) are
// assigned such that all values occur equally often.
std::vector<AttentionCase> conformance_cases();

// Cases for run_page_order(): those of the above with K/V in several pages.
std::vector<AttentionCase> page_order_cases();

// MLA family: 576/512 with 16 and 128 heads, and small ranks.
std::vector<AttentionCase> mla_conformance_cases();

// MLA cases with scaled latent rows.
std::vector<AttentionCase> scaled_row_cases();

// Cases for run_batch_invariance(): fixed splits, causal.
std::vector<AttentionCase> batch_invariance_cases();

// Changes the cases to dtypes that the tensor cores of GPUs support.
std::vector<AttentionCase> on_tensor_cores(std::vector<AttentionCase> cases);

// Changes queries, keys and values to e4m3; every other case has descales per head.
std::vector<AttentionCase> in_e4m3(std::vector<AttentionCase> cases);

}  // namespace attend::conformance
