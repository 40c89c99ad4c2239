// Places weights into the slots of a model: from its files, or random ones.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/kernels/common/random_normal.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// What slots were placed from: keeps it where it is.
struct LoadedWeights {
  std::vector<Tensor> tensors;
  size_t num_bytes = 0, expert_bytes = 0;          // expert_bytes: of those, experts'
  std::shared_ptr<const CheckpointTensors> files;  // of weights that are mapped

  void count(const WeightSlot& slot, size_t bytes) {
    num_bytes += bytes;
    if (slot.num_experts > 1) expert_bytes += bytes;
  }
};

// A part's tensor as its slot has it, in host memory: the tensor itself, or a copy where the slot is
// zero_centered, in_f32, or of a layout that is transposed. Elements are in the order of part_shape().
Tensor to_slot_layout(const WeightSlot& slot, const Tensor& stored);
// The elements as `dtype`: a copy where they are of another.
Tensor converted(const Tensor& from, DType dtype);
// Whether to_slot_layout() copies whatever the file's dtype is.
bool is_repacked(const WeightSlot& slot);

// Passes weights to the slot, after setting their shard axis to the slot's.
void place(const WeightSlot& slot, std::span<Weight> weights);

// Checks all parts before the first one is read, as check_part() does. Returns the bytes to fetch.
uint64_t check_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                       const CheckpointTensors& files);

// The tensors as stored, mapped: no copy but of unaligned ones, of a rank's columns, and what
// to_slot_layout() copies; parts are not joined. Checks all parts first. Throws as check_part() and
// read_part(): a number that is not finite would pass from one token to all that follow it.
//
// Quantized parts are views of the file too where kernels read its layout, else copies, made tensor by tensor
// (copies_quantized_values()).
LoadedWeights map_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                          std::shared_ptr<const CheckpointTensors> files, const LoadProgress& progress);

// The tensors copied to `device` as `dtype`, one after another, the parts of a slot joined. Quantized ones go
// in their own bits; parts of a dense layer that do not fit together stay apart, with their biases. Host
// memory is needed for a slot's parts at most, of experts for one. Throws as map_weights(),
// Error(kOutOfMemory) with needed and free bytes, and Error(kUnsupported) for experts that do not fit
// together.
LoadedWeights upload_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                             const CheckpointTensors& files, DType dtype, Device device,
                             const LoadProgress& progress);
// Bytes that it takes at most.
size_t device_bytes(std::span<const WeightSlot> slots, const Quantization& quantization, DType dtype);

// Random numbers of each slot, the same for the same shapes: about N(0, 0.02^2), norms about N(1, 0.02^2).
std::vector<kernels::RandomNormal> dummy_numbers(std::span<const WeightSlot> slots);

// Random weights, in host memory or made on a GPU: there the numbers of a host, rounded to `dtype`. Throws
// Error(kOutOfMemory) with needed and free bytes.
//
// Parts that are quantized (quantized_tensor.h) get random codes, made in host memory.
LoadedWeights make_dummy_weights(std::span<const WeightSlot> slots, DType dtype, Device device,
                                 const LoadProgress& progress, const Quantization& quantization = {});

}  // namespace attend
