// Fills weight slots: from the files of a model, or with random numbers.
#pragma once

#include <span>
#include <vector>

#include "attend/kernels/common/random_normal.h"
#include "attend/model/decoder_weights.h"
#include "attend/model/model.h"
#include "attend/model/model_weights.h"

namespace attend {

// The tensors as stored, mapped: no copy but of unaligned ones. Tensors that no slot asks for are ignored.
// Throws Error(kNotFound) for a missing tensor, Error(kCorruptFile) for another shape, Error(kUnsupported)
// for a dtype other than float32, float16 and bfloat16, all before the first tensor is read;
// Error(kCorruptFile) for a number that is not finite, which one token would take to all that follow it.
void load_weights(std::span<const WeightSlot> slots, const ModelWeights& files, const LoadProgress& progress);

// The numbers that random weights are made of, for every slot: the same for the same shapes.
std::vector<kernels::RandomNormal> dummy_numbers(std::span<const WeightSlot> slots);

// Random weights in host memory, the same for the same slots: about N(0, 0.02^2), norms about N(1, 0.02^2).
// `dtype`: float32, float16 or bfloat16. Throws Error(kOutOfMemory) with needed and free bytes.
void make_dummy_weights(std::span<const WeightSlot> slots, DType dtype, const LoadProgress& progress);

}  // namespace attend
