// Attention, MLA, merge and store on a GPU. As the functions of attention.h, mla.h, merge.h and store.h,
// which check their arguments and call these.
#pragma once

#include "attend/kernels/attention.h"
#include "attend/kernels/cuda/device_plan.h"
#include "attend/kernels/merge.h"
#include "attend/kernels/mla.h"
#include "attend/kernels/store.h"

namespace attend::kernels::cuda {

// Tensor core kernels take q of bf16 or f16, K/V of that dtype or fp8, out of that dtype or f32, a positive
// scale, and rows that begin at multiples of 16 bytes; the rest, float32 above all, runs on a plain kernel.
void attention(const AttentionArgs& args, const DevicePlan& plan, Stream& stream);
// The same, with q and latent rows of one 16-bit dtype and splits that are not fixed, on a GPU with 163 KiB
// of shared memory for a CTA; the rest runs on the plain kernel.
void mla(const MlaArgs& args, const DevicePlan& plan, Stream& stream);

void merge(const MergeArgs& args, Stream& stream);
void merge_splits(const MergeSplitsArgs& args, Stream& stream);

void store_kv(const StoreKvArgs& args, Stream& stream);
void store_mla(const StoreMlaArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
