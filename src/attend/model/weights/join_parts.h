// Joins the quantized parts of a slot into one weight in GPU memory, if their formats match.
#pragma once

#include <functional>
#include <span>

#include "attend/model/weights/read_part.h"
#include "attend/tensor/arena.h"

namespace attend {

// Returns whether the part stays quantized in memory: it is stored quantized, and its slot does not
// dequantize.
bool is_loaded_quantized(const WeightSlot& slot, const WeightPart& part);

// Upper bound of arena bytes for codes, scales, zero points and input order.
size_t device_bytes(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization);

// Returns whether parts in host memory can be rows of one weight: same format, group of inputs, outputs per
// block and dtype of scales, and all inputs in order.
bool can_join(std::span<const LoadedPart> parts);

// Rows of one weight on a GPU, part after part. If the parts do not divide into whole fp8 blocks or tensors,
// scales are expanded to one per output and block of inputs. Experts have equal numbers of rows, and each may
// have its own input order.
class JoinedWeight {
 public:
  // Copies elements to the arena's device and waits for completion.
  using Copy = std::function<void(const TensorView& from, const TensorView& to)>;

  // Allocates `num_rows` outputs in the format of the first part. The rows of every part except the last are
  // multiples of `part_rows`.
  JoinedWeight(const Weight& first, int64_t num_rows, int64_t part_rows, Arena& arena, Copy copy,
               int64_t num_experts = 1);

  // Copies a part to the next rows. If it cannot be joined, throws Error(kUnsupported) with its name.
  void add(const Weight& part, const std::string& name);
  const Weight& weight() const { return weight_; }
  // Memory of the weight.
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
  std::vector<int32_t> order_;  // input order for the expert of the last part
  int64_t num_added_ = 0;
};

}  // namespace attend
