// Quantized parts of a slot in the memory of a GPU: one weight where they fit together.
#pragma once

#include <functional>
#include <span>

#include "attend/model/weights/read_part.h"
#include "attend/tensor/arena.h"

namespace attend {

// Whether a slot's part is placed in its own bits: quantized, and not multiplied head by head.
bool is_loaded_quantized(const WeightSlot& slot, const WeightPart& part);

// At most so many bytes of an arena, codes, scales, zero points and order.
size_t device_bytes(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization);

// Whether parts in host memory can be rows of one weight: one format, one kind of groups of inputs, blocks of
// one height, all inputs in order, scales of one dtype.
bool can_join(std::span<const LoadedPart> parts);

// Rows of one weight on a GPU, part after part. Scales of fp8 that parts do not share whole blocks or tensors
// of become a scale for each output, and for each block of its inputs. Experts, which have as many rows each,
// may have their inputs in an order of their own.
class JoinedWeight {
 public:
  // Copies elements to the arena's device, and waits.
  using Copy = std::function<void(const TensorView& from, const TensorView& to)>;

  // For `num_rows` outputs of parts like the first. `part_rows`: of all parts but the last, multiples of it.
  JoinedWeight(const Weight& first, int64_t num_rows, int64_t part_rows, Arena& arena, Copy copy,
               int64_t num_experts = 1);

  // Copies a part to the next rows. Throws Error(kUnsupported), by its name, for one that can not
  // be joined.
  void add(const Weight& part, const std::string& name);
  const Weight& weight() const { return weight_; }
  // That keep the weight.
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  const TensorView& allocate(std::initializer_list<int64_t> shape, DType dtype);
  void add_zeros(const Weight& part);
  void add_order(const Weight& part, const std::string& name);

  Arena& arena_;
  Copy copy_;
  Weight weight_;
  std::vector<Tensor> tensors_;
  int64_t num_experts_;
  std::vector<int32_t> order_;  // of the expert that the last part was of
  int64_t num_added_ = 0;
};

}  // namespace attend
