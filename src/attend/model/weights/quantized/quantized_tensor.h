// Quantized parts of slots, from a checkpoint or random.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/config/quantization.h"
#include "attend/model/weights/read_part.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Returns true if read_part() copies the codes of a part with this kind and these tensors.
bool copies_quantized_values(const WeightSlot& slot, const WeightPart& part,
                             const Quantization& quantization);

// Throws Error(kUnsupported) for weights that attend computes with on CPUs only: blocks of GGUF files.
void require_gpu_weights(const Quantization& quantization);

// Returns the elements in float32.
Tensor dequantize(const Weight& weight);

// Sets the storage and tensor names of the parts of linear layers: quantized if the checkpoint has the
// tensors of a quantized weight under their names, otherwise plain.
void find_quantized_tensors(std::span<WeightSlot> slots, const Quantization& quantization,
                            const CheckpointTensors& files);

// Returns whether a tensor without a slot is a scale of activations. These are not used: activations stay
// unquantized.
bool scales_activations(std::string_view name);

// Sets the storage of the parts of linear layers. Routers stay plain, as in checkpoints. If groups do not
// divide a layer's inputs, or blocks do not divide the outputs of experts that share a tensor, throws
// Error(kUnsupported) with the layer.
void quantize_dummy_tensors(std::span<WeightSlot> slots, const Quantization& quantization);

// Generates random codes in host memory, with scales that give values similar to other dummy weights. Throws
// Error(kOutOfMemory) with the requested bytes.
LoadedPart make_dummy_tensor(const WeightSlot& slot, const WeightPart& part,
                             const Quantization& quantization);

// Returns the quantization for "fp8", "fp8-block", "int8", "int4" (groups of 128), "int4-g32" (groups of 32)
// or "mxfp4", as in most checkpoints. For other names, throws Error(kInvalidArgument) with this list.
Quantization dummy_quantization(std::string_view name);

}  // namespace attend
