// Readers for the stored formats of quantized parts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attend/model/weights/part_reader.h"

namespace attend {

// Returns the reader for a part's storage and layout: one of the readers below.
std::unique_ptr<PartReader> make_quantized_reader(const WeightSlot& slot, const WeightPart& part,
                                                  const Quantization& quantization,
                                                  const CheckpointTensors& files);

// Reads fp8 with the tensor names of all publishers. Scales are per tensor, per output or per block. The
// codes are a view of the file.
std::unique_ptr<PartReader> make_fp8_reader(const WeightSlot& slot, const WeightPart& part,
                                            const Quantization& quantization, const CheckpointTensors& files);

// Returns true for experts in fp8 that share a tensor, input features first: [experts, inputs, outputs].
bool shares_fp8_experts(const WeightSlot& slot, const Quantization& quantization);

// Returns the names of the part's tensors, scales first: "<part>_weight_scale" (ModelOpt), "<part>_scale_inv"
// or "<part>_scale", then the part itself. Empty if the files have no such scales.
std::vector<std::string> fp8_expert_tensors(const WeightPart& part, const CheckpointTensors& files);

// Reads fp8 experts that share a tensor. Scales are per tensor, per expert, per output or per block of inputs
// and outputs. The weight is a copy, with outputs first.
std::unique_ptr<PartReader> make_fp8_expert_reader(const WeightSlot& slot, const WeightPart& part,
                                                   const Quantization& quantization,
                                                   const CheckpointTensors& files);

// Reads int4: pack-quantized of compressed-tensors, GPTQ and AWQ. The codes of compressed-tensors with inputs
// in order are a view of the file; others are a copy.
std::unique_ptr<PartReader> make_int4_reader(const WeightSlot& slot, const WeightPart& part,
                                             const Quantization& quantization,
                                             const CheckpointTensors& files);

// Reads int8: int-quantized and pack-quantized of compressed-tensors, and 8-bit GPTQ. Throws
// Error(kUnsupported) for asymmetric zero points and reordered inputs, which kernels support only in 4 bits.
// The weight is a view of the file for int-quantized, otherwise a copy.
std::unique_ptr<PartReader> make_int8_reader(const WeightSlot& slot, const WeightPart& part,
                                             const Quantization& quantization,
                                             const CheckpointTensors& files);

// Reads mxfp4 of gpt-oss, with one or several experts per tensor, and of compressed-tensors. Codes and scales
// are views of the file.
std::unique_ptr<PartReader> make_mxfp4_reader(const WeightSlot& slot, const WeightPart& part,
                                              const Quantization& quantization,
                                              const CheckpointTensors& files);

// Reads blocks of GGUF files. The blocks are a view of the file.
std::unique_ptr<PartReader> make_block_reader(const WeightSlot& slot, const WeightPart& part,
                                              const Quantization& quantization,
                                              const CheckpointTensors& files);

}  // namespace attend
