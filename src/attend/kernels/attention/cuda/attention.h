// Attention, MLA and merges on a GPU: implementations of the functions of attention.h, which check arguments
// first.
#pragma once

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/cuda/choose.h"
#include "attend/kernels/attention/cuda/common/plan/device_plan.h"

namespace attend::kernels::cuda {

// Tensor core kernels support q of bf16 or f16, K/V of the same dtype or fp8, out of the same dtype or f32
// (prefill on Hopper also q and K/V of e4m3, with any out), a positive scale, and rows that begin at
// multiples of 16 bytes. Everything else, mostly float32, runs on the row kernel.
void attention(const AttentionArgs& args, const DevicePlan& plan, Stream& stream);
// Runs the kernel that is chosen with `tuning` instead of that of the GPU.
void attention(const AttentionArgs& args, const DevicePlan& plan, Stream& stream,
               const AttentionTuning& tuning);
// Same for MLA. Tensor core kernels support q and latent rows of one 16-bit dtype without fixed splits, on a
// GPU with 163 KiB of shared memory per CTA; more than 64 rows per request only with kv_lora_rank above 128.
// Everything else runs on the row kernel.
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
