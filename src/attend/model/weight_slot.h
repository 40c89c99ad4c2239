// WeightSlot: a matrix or vector that a model needs, which tensors of a checkpoint it is made of, and where
// it goes.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/tensor/weight.h"

namespace attend {

// What a weight is for, which says how it is made up and what a step costs.
enum class WeightUse : uint8_t {
  kTable,   // rows are looked up
  kLinear,  // multiplies every token
  kHead,    // multiplies the tokens whose logits are wanted
  kBias,    // a vector of a linear layer
  kNorm,    // a vector about 1
};

// One tensor of the checkpoint and its rows of the slot.
struct WeightPart {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  int64_t rows = 0;
};

struct WeightSlot {
  // Rows of the slot, one part after another. A device with memory of its own joins them; where weights stay
  // in their file each part stays what it is.
  std::vector<WeightPart> parts = {};
  int64_t columns = 0;  // 0: a vector
  WeightUse use = WeightUse::kLinear;
  ShardAxis shard = ShardAxis::kNone;
  // Hands the model its weights: one of the whole, or one of each part. Of a vector data alone counts.
  std::function<void(std::span<const Weight>)> place = {};

  int64_t rows() const;
  int64_t num_elements() const { return rows() * (columns > 0 ? columns : 1); }
  std::vector<int64_t> shape() const { return shape_of_rows(rows()); }
  std::vector<int64_t> part_shape(size_t part) const { return shape_of_rows(parts[part].rows); }
  int64_t part_elements(size_t part) const { return parts[part].rows * (columns > 0 ? columns : 1); }

 private:
  std::vector<int64_t> shape_of_rows(int64_t num_rows) const;
};

// Writes the slots of a module, whose tensors have names with a common prefix. What slots are placed into
// outlives them and stays where it is.
class SlotWriter {
 public:
  SlotWriter(std::string prefix, std::vector<WeightSlot>& slots)
      : prefix_(std::move(prefix)), slots_(slots) {}

  // A part of a linear layer: "<prefix><name>.weight" and, where there is one, ".bias".
  struct Part {
    std::string_view name;
    int64_t out_features;
  };

  void norm(std::string_view name, int64_t size, TensorView& into);
  // [rows, columns] of kTable or kHead.
  void matrix(std::string_view name, int64_t rows, int64_t columns, WeightUse use, Weight& into);
  // `into` gets one Linear, or one of each part.
  void linear(std::initializer_list<Part> parts, int64_t in_features, bool bias, ShardAxis shard,
              std::vector<Linear>& into);

 private:
  std::string name_of(std::string_view name, std::string_view kind) const {
    return prefix_ + std::string(name) + std::string(kind);
  }

  std::string prefix_;
  std::vector<WeightSlot>& slots_;
};

// Bytes of all parts as `dtype` in an arena.
size_t num_bytes(std::span<const WeightSlot> slots, DType dtype);

}  // namespace attend
