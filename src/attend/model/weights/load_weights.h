// Loads weights from files, or generates random ones, and sets the slots of a model.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/kernels/common/random_normal.h"
#include "attend/model/weights/weight_slot.h"

namespace attend {

// Memory of the weights in slots. Owns it, or maps it.
struct LoadedWeights {
  std::vector<Tensor> tensors;
  size_t num_bytes = 0, expert_bytes = 0;          // expert_bytes: share of experts in num_bytes
  std::shared_ptr<const CheckpointTensors> files;  // files of mapped weights

  void count(const WeightSlot& slot, size_t bytes) {
    num_bytes += bytes;
    if (slot.num_experts > 1) expert_bytes += bytes;
  }
};

// Converts a part's tensor to the layout of its slot, in host memory. Returns the tensor itself, or a copy if
// the slot is zero_centered, scaled, in_f32 or transposed. Elements are in the order of part_shape().
Tensor to_slot_layout(const WeightSlot& slot, const Tensor& stored);
// Returns the elements as `dtype`: a copy if the tensor has another dtype.
Tensor converted(const Tensor& from, DType dtype);
// Returns whether to_slot_layout() copies regardless of the file's dtype.
bool is_repacked(const WeightSlot& slot);

// Passes weights to the slot, after setting their shard axis to the slot's. Joins the parts of a convolution,
// in memory that it adds to `tensors`.
void place(const WeightSlot& slot, std::vector<Weight> weights, std::vector<Tensor>& tensors);

// Checks all parts as check_part() does, without reading elements. Returns the bytes to fetch.
uint64_t check_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                       const CheckpointTensors& files);

// Maps the tensors as stored. Copies only unaligned tensors, a rank's columns and what to_slot_layout()
// copies; does not join parts. Checks all parts first. Throws as check_part() and read_part(): a number that
// is not finite would propagate from one token to all later ones.
//
// If kernels read the stored layout of a quantized part, the part is a view of the file. Otherwise it is
// copied, tensor by tensor (copies_quantized_values()).
LoadedWeights map_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                          std::shared_ptr<const CheckpointTensors> files, const LoadProgress& progress);

// Copies the tensors to `device` as `dtype` one by one, and joins the parts of a slot. Quantized parts stay
// quantized; if parts of a dense layer cannot be joined, they and their biases stay separate. Requires host
// memory for at most the parts of one slot or, for experts, for one part. Throws as map_weights(),
// Error(kOutOfMemory) with needed and free bytes, and Error(kUnsupported) for experts that cannot be joined.
LoadedWeights upload_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                             const CheckpointTensors& files, DType dtype, Device device,
                             const LoadProgress& progress);
// Upper bound of the device bytes that upload_weights() allocates.
size_t device_bytes(std::span<const WeightSlot> slots, const Quantization& quantization, DType dtype);

// Returns the random numbers of each slot, equal for equal shapes: N(0, 0.02^2), for norms N(1, 0.02^2).
std::vector<kernels::RandomNormal> dummy_numbers(std::span<const WeightSlot> slots);

// Generates random weights in host memory or on a GPU. The GPU generates the same numbers as the host,
// rounded to `dtype`. Throws Error(kOutOfMemory) with needed and free bytes.
//
// Quantized parts (quantized_tensor.h) get random codes, which are generated in host memory.
LoadedWeights make_dummy_weights(std::span<const WeightSlot> slots, DType dtype, Device device,
                                 const LoadProgress& progress, const Quantization& quantization = {});

}  // namespace attend
