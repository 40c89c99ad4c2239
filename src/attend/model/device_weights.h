// Weights on their way to a GPU.
#pragma once

#include <span>

#include "attend/model/decoder_weights.h"
#include "attend/model/model.h"

namespace attend {

// Bytes of device memory that the slots take as `dtype`, wherever their tensors lie now.
size_t device_weight_bytes(std::span<const WeightSlot> slots, DType dtype);

// Copies every tensor of the slots to `device` as `dtype`, and joins what is multiplied with the same
// activations: q, k and v of a layer become qkv, gate and up become gate_up. The host's tensors are given up.
// Throws Error(kOutOfMemory) with needed and free bytes.
void move_to_device(std::span<const WeightSlot> slots, DType dtype, Device device,
                    const LoadProgress& progress, DecoderWeights& weights);

// Random weights made on `device`, joined in the same way: the numbers of make_dummy_weights(), rounded to
// `dtype`. Throws as move_to_device().
void make_dummy_weights_on_device(std::span<const WeightSlot> slots, DType dtype, Device device,
                                  const LoadProgress& progress, DecoderWeights& weights);

}  // namespace attend
