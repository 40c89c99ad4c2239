// Parts of slots that a checkpoint has quantized, or that are generated in such a format.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/quantization.h"
#include "attend/model/weights/read_part.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Returns true if the codes that read_part() returns are a copy, by the part's kind and tensors.
bool copies_quantized_values(const WeightSlot& slot, const WeightPart& part,
                             const Quantization& quantization);

// Its elements in float32.
Tensor dequantize(const Weight& weight);

// Sets how the parts of linear layers are stored, and the names of their tensors: quantized where the
// checkpoint has a quantized weight's tensors under their names, else plain.
void find_quantized_tensors(std::span<WeightSlot> slots, const Quantization& quantization,
                            const CheckpointTensors& files);

// Whether a tensor that no slot asks for scales activations, which are not quantized here.
bool scales_activations(std::string_view name);

// Sets the storage of the parts of linear layers; routers stay plain, as in checkpoints. Throws
// Error(kUnsupported) with the layer where groups do not divide its inputs, or blocks the outputs of experts
// that share a tensor.
void quantize_dummy_tensors(std::span<WeightSlot> slots, const Quantization& quantization);

// Random codes with scales that keep products near those of other dummy weights, in host memory. Throws
// Error(kOutOfMemory) with the bytes wanted.
LoadedPart make_dummy_tensor(const WeightSlot& slot, const WeightPart& part,
                             const Quantization& quantization);

// "fp8", "fp8-block", "int8", "int4", "int4-g32" or "mxfp4", as most checkpoints have them; groups of int4
// are 128 inputs, or 32. Throws Error(kInvalidArgument) with this list.
Quantization dummy_quantization(std::string_view name);

}  // namespace attend
