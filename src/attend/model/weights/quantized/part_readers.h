// A check and a reader for each format of quantized parts, as check_quantized_tensor() and
// read_quantized_tensor() call them.
#pragma once

#include "attend/model/weights/quantized/quantized_tensor.h"

namespace attend {

// Parts in fp8 of a matrix each, by the names of every publisher.
// Scales are one of all, one of each output, or those of
// blocks. The codes are a view of the file.
void check_fp8_tensor(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                      const CheckpointTensors& files);
QuantizedTensor read_fp8_tensor(const WeightSlot& slot, const WeightPart& part,
                                const Quantization& quantization, const CheckpointTensors& files);

// Whether the slot's part is of experts in fp8 that share a tensor, input features first: [experts, inputs,
// outputs].
bool shares_fp8_experts(const WeightSlot& slot, const Quantization& quantization);

// The names of the part's tensors, scales first: "<part>_weight_scale" (ModelOpt), "<part>_scale_inv" or
// "<part>_scale", and the part itself. Empty: the files have no such scales.
std::vector<std::string> fp8_expert_tensors(const WeightPart& part, const CheckpointTensors& files);

// Scales are one of all experts, one of each, one of
// each output, or those of blocks of inputs and outputs. The weight is a copy, with outputs first.
void check_fp8_experts(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                       const CheckpointTensors& files);
QuantizedTensor read_fp8_experts(const WeightSlot& slot, const WeightPart& part,
                                 const Quantization& quantization, const CheckpointTensors& files);

// Parts in int4: compressed-tensors' pack-quantized, GPTQ and AWQ.
// The codes of compressed-tensors whose inputs are in
// order are a view of the file, others a copy.
void check_int4_tensor(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                       const CheckpointTensors& files);
QuantizedTensor read_int4_tensor(const WeightSlot& slot, const WeightPart& part,
                                 const Quantization& quantization, const CheckpointTensors& files);

// Parts in int8: compressed-tensors' int-quantized and pack-quantized, and GPTQ's in 8 bits.
// Zero points that are not in the middle, and inputs in
// another order, throw Error(kUnsupported): kernels have them in 4 bits alone. The weight is a view of the
// file where that has a byte an element in rows of outputs.
void check_int8_tensor(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                       const CheckpointTensors& files);
QuantizedTensor read_int8_tensor(const WeightSlot& slot, const WeightPart& part,
                                 const Quantization& quantization, const CheckpointTensors& files);

// Parts in mxfp4: gpt-oss's, which may be of several experts, and compressed-tensors'.
// Codes and scales are views of the file.
void check_mxfp4_tensor(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                        const CheckpointTensors& files);
QuantizedTensor read_mxfp4_tensor(const WeightSlot& slot, const WeightPart& part,
                                  const Quantization& quantization, const CheckpointTensors& files);

}  // namespace attend
