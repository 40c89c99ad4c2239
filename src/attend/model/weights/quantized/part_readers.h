// A PartReader for each way to store quantized parts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attend/model/weights/part_reader.h"

namespace attend {

// The reader of a quantized part: one of those below, by its storage and layout.
std::unique_ptr<PartReader> make_quantized_reader(const WeightSlot& slot, const WeightPart& part,
                                                  const Quantization& quantization,
                                                  const CheckpointTensors& files);

// fp8, by the names of every publisher. Scales are one of all, one of each output, or those of blocks. The
// codes are a view of the file.
std::unique_ptr<PartReader> make_fp8_reader(const WeightSlot& slot, const WeightPart& part,
                                            const Quantization& quantization, const CheckpointTensors& files);

// Returns true for experts in fp8 that share a tensor, input features first: [experts, inputs, outputs].
bool shares_fp8_experts(const WeightSlot& slot, const Quantization& quantization);

// Names of the part's tensors, scales first: "<part>_weight_scale" (ModelOpt), "<part>_scale_inv" or
// "<part>_scale", and the part itself. Empty: the files have no such scales.
std::vector<std::string> fp8_expert_tensors(const WeightPart& part, const CheckpointTensors& files);

// Experts in fp8 that share a tensor. Scales are one of all experts, one of each, one of each output, or
// those of blocks of inputs and outputs. The weight is a copy, with outputs first.
std::unique_ptr<PartReader> make_fp8_expert_reader(const WeightSlot& slot, const WeightPart& part,
                                                   const Quantization& quantization,
                                                   const CheckpointTensors& files);

// int4: compressed-tensors' pack-quantized, GPTQ and AWQ. The codes of compressed-tensors whose inputs are in
// order are a view of the file, others a copy.
std::unique_ptr<PartReader> make_int4_reader(const WeightSlot& slot, const WeightPart& part,
                                             const Quantization& quantization,
                                             const CheckpointTensors& files);

// int8: compressed-tensors' int-quantized and pack-quantized, and GPTQ's in 8 bits. Zero points that are not
// in the middle, and inputs in another order, throw Error(kUnsupported): kernels have them in 4 bits only.
// The weight is a view of the file where that has a byte for each element in rows of outputs.
std::unique_ptr<PartReader> make_int8_reader(const WeightSlot& slot, const WeightPart& part,
                                             const Quantization& quantization,
                                             const CheckpointTensors& files);

// mxfp4: gpt-oss's, which may be of several experts, and compressed-tensors'. Codes and scales are views of
// the file.
std::unique_ptr<PartReader> make_mxfp4_reader(const WeightSlot& slot, const WeightPart& part,
                                              const Quantization& quantization,
                                              const CheckpointTensors& files);

}  // namespace attend
