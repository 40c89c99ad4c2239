// Attention, MLA and merges on a GPU. As the functions of attention.h, mla.h and merge.h, which check their
// arguments and call these.
#pragma once

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/cuda/choose.h"
#include "attend/kernels/attention/cuda/common/plan/device_plan.h"

namespace attend::kernels::cuda {

// Tensor core kernels take q of bf16 or f16, K/V of that dtype or fp8, out of that dtype or f32 (prefill on
// Hopper also q and K/V of e4m3, out of any), a positive scale, and rows that begin at multiples of 16 bytes;
// the rest, float32 above all, runs on a plain kernel.
void attention(const AttentionArgs& args, const DevicePlan& plan, Stream& stream);
// By the kernel that is chosen under `tuning` instead of the GPU's.
void attention(const AttentionArgs& args, const DevicePlan& plan, Stream& stream,
               const AttentionTuning& tuning);
// The same, with q and latent rows of one 16-bit dtype and splits that are not fixed, on a GPU with 163 KiB
// of shared memory for a CTA, except more than 64 rows of a request where kv_lora_rank is at most 128; the
// rest runs on the plain kernel.
void mla(const MlaArgs& args, const DevicePlan& plan, Stream& stream);

// GPU versions of the functions of attention.h.
bool stores_new_keys(const AttentionArgs& args, const DevicePlan& plan);
bool has_head_descales(const AttentionArgs& args, const DevicePlan& plan);
bool multiplies_e4m3(Device device, int64_t head_dim_qk, int64_t head_dim_v, int64_t num_rows);

// Return the input of choose() for a call.
AttentionProblem attention_problem(const AttentionArgs& args, const DevicePlan& plan);
AttentionProblem attention_problem(const MlaArgs& args, const DevicePlan& plan);

void merge(const MergeArgs& args, Stream& stream);
void merge_splits(const MergeSplitsArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
