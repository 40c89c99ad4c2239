// Places weights into the slots of a model: from its files, or random ones.
#pragma once

#include <span>

#include "attend/kernels/common/random_normal.h"
#include "attend/model/loadable_model.h"

namespace attend {

// The tensors as stored, mapped: no copy but of unaligned ones; parts are not joined. Tensors that no slot
// asks for are ignored. Throws Error(kNotFound) for a missing tensor, Error(kCorruptFile) for another shape,
// Error(kUnsupported) for a dtype other than float32, float16 and bfloat16, all before the first tensor is
// read; Error(kCorruptFile) for a number that is not finite, which one token would take to all that follow
// it.
LoadedWeights map_weights(std::span<const WeightSlot> slots, ModelWeights files,
                          const LoadProgress& progress);

// The same tensors copied to `device` as `dtype`, one after another, the parts of a slot joined. Throws
// Error(kOutOfMemory) with needed and free bytes.
LoadedWeights upload_weights(std::span<const WeightSlot> slots, const ModelWeights& files, DType dtype,
                             Device device, const LoadProgress& progress);

// Random numbers of each slot, the same for the same shapes: about N(0, 0.02^2), norms about N(1, 0.02^2).
std::vector<kernels::RandomNormal> dummy_numbers(std::span<const WeightSlot> slots);

// Random weights, in host memory or made on a GPU: there the numbers of a host, rounded to `dtype`. Throws
// Error(kOutOfMemory) with needed and free bytes.
LoadedWeights make_dummy_weights(std::span<const WeightSlot> slots, DType dtype, Device device,
                                 const LoadProgress& progress);

}  // namespace attend
