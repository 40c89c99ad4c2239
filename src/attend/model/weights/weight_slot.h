// WeightSlot: a matrix or vector that a model needs, which tensors of a checkpoint it is made of, and where
// it goes.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/quantization.h"
#include "attend/tensor/weight.h"

namespace attend {

// What a weight is for, which says how it is made up and what a step costs.
enum class WeightUse : uint8_t {
  kTable,   // rows are looked up
  kLinear,  // multiplies every token
  kRouter,  // the same, of a router, which checkpoints with quantized weights leave plain
  kHead,    // multiplies the tokens whose logits are wanted
  kBias,    // a vector of a linear layer
  kNorm,    // a vector about 1
};

// Rows of a slot that are rows of one tensor of the checkpoint. A tensor that holds several matrices, such as
// those of q, k and v, is several parts.
struct WeightPart {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  int64_t rows = 0;
  // Row of the tensor that is the part's first, and rows of the tensor, those of experts one after another.
  // A tensor_rows of 0: the tensor has the part's rows and no others.
  int64_t first_row = 0, tensor_rows = 0;
  // Rows that ranks do not divide further: a head's.
  int64_t unit_rows = 1;
  // Several ranks have the same unit where there are fewer units than ranks: heads of K and V.
  bool is_replicated = false;
  // How the checkpoint stores it, and the tensors of a part that it does not store plain
  // (quantized_tensor.h).
  WeightStorage storage = WeightStorage::kPlain;
  std::vector<std::string> tensors = {};
  size_t kind = 0;  // of the files' quantization

  std::span<const std::string> tensor_names() const {
    return storage == WeightStorage::kPlain ? std::span(&name, 1) : std::span(tensors);
  }
};

// How the tensor of a part holds its rows and columns.
enum class StoredLayout : uint8_t {
  kRows,           // [rows, columns]; a vector: [rows]
  kExpertRows,     // [num_experts, rows of one, columns]; vectors: [num_experts, rows of one]
  kExpertColumns,  // [num_experts, columns, rows of one]: transposed when it is loaded
};

struct WeightSlot {
  // Rows of the slot, one part after another. A device with memory of its own joins them; where weights stay
  // in their file each part stays what it is.
  std::vector<WeightPart> parts = {};
  // The parts of a file that has a tensor of each expert, where others have one of all. Empty: no file does.
  std::vector<WeightPart> parts_per_expert = {};
  int64_t columns = 0;  // 0: a vector
  // Column of the tensors that is the slot's first, and columns of the tensors. 0: they have the slot's.
  int64_t first_column = 0, tensor_columns = 0;
  int64_t unit_columns = 1;  // that ranks do not divide further
  WeightUse use = WeightUse::kLinear;
  ShardAxis shard = ShardAxis::kNone;  // by which ranks divide it; shard() divides it
  // A norm that is stored around 0 and multiplies by 1 + weight. It is placed as that sum, in float32: in
  // bfloat16 a small weight would vanish beside the 1.
  bool zero_centered = false;
  // A norm whose weights are multiplied by this where they are placed, in float32 if it is not 1.
  float scale = 1.0f;
  // A vector that is placed in float32, whatever the other weights are.
  bool in_f32 = false;
  StoredLayout layout = StoredLayout::kRows;
  // Multiplied head by head, by kernels that take elements: a quantized one is placed as float32.
  bool dequantize_on_load = false;
  // The rows are those of so many experts, one after another, of which a token meets experts_per_token. 1 of
  // 1: every token meets all rows.
  int num_experts = 1, experts_per_token = 1;
  // Hands the model its weights: one of the whole, or one of each part. Of a vector data alone counts.
  std::function<void(std::span<const Weight>)> place = {};

  int64_t rows() const;
  // Of what is placed where weights are `dtype`.
  DType loaded_dtype(DType dtype) const {
    return zero_centered || scale != 1.0f || in_f32 ? DType::kF32 : dtype;
  }
  int64_t num_elements() const { return rows() * (columns > 0 ? columns : 1); }
  std::vector<int64_t> shape() const { return shape_of_rows(rows()); }
  std::vector<int64_t> part_shape(size_t part) const { return shape_of_rows(parts[part].rows); }
  int64_t part_elements(size_t part) const { return parts[part].rows * (columns > 0 ? columns : 1); }

 private:
  std::vector<int64_t> shape_of_rows(int64_t num_rows) const;
};

// Returns the slot as rank `rank` of `num_ranks` loads it: by slot.shard its rows of each part, its columns,
// or all. Parts whose rows follow each other in a tensor become one, so that a single rank has one part of
// each tensor. Throws Error(kUnsupported) naming the tensor where units can not be divided evenly.
WeightSlot shard(WeightSlot slot, int rank, int num_ranks);

// Writes the slots of a module, whose tensors have names with a common prefix. What slots are placed into
// outlives them and stays where it is.
class SlotWriter {
 public:
  SlotWriter(std::string prefix, std::vector<WeightSlot>& slots, bool zero_centered_norms = false)
      : prefix_(std::move(prefix)), slots_(slots), zero_centered_norms_(zero_centered_norms) {}

  // A part of a linear layer: "<prefix><name>.weight" and, where there is one, ".bias". Parts of one name
  // are rows of one tensor, in this order.
  struct Part {
    std::string_view name;
    int64_t out_features;
    int64_t unit = 1;  // as WeightPart::unit_rows
    bool is_replicated = false;
  };
  struct Inputs {
    Inputs(int64_t num_features, int64_t rank_unit = 1)  // NOLINT: a number of features is enough
        : features(num_features), unit(rank_unit) {}
    int64_t features, unit;  // unit: as WeightSlot::unit_columns
  };

  void norm(std::string_view name, int64_t size, TensorView& into, float scale = 1.0f);
  // "<prefix><name>.weight" and ".bias".
  void layer_norm(std::string_view name, int64_t size, kernels::LayerNorm& into);
  // "<prefix><name>", a bias that is placed in float32.
  void vector_in_f32(std::string_view name, int64_t size, TensorView& into,
                     ShardAxis shard = ShardAxis::kNone);
  // [rows, columns] of kTable or kHead.
  void matrix(std::string_view name, int64_t rows, int64_t columns, WeightUse use, Weight& into);
  // `into` gets one Linear, or one of each part.
  void linear(std::initializer_list<Part> parts, Inputs inputs, bool bias, ShardAxis shard,
              std::vector<Linear>& into, bool dequantize_on_load = false, WeightUse use = WeightUse::kLinear);
  // The same of experts, without biases: "<prefix><experts>.<expert>.<part>.weight", the parts of expert 0,
  // those of expert 1, ...
  struct Experts {
    std::string_view name;
    int num_experts;
    int per_token;
  };
  void experts(const Experts& experts, std::initializer_list<Part> parts, int64_t in_features,
               ShardAxis shard, std::vector<Linear>& into);
  // The same of experts that share a tensor: "<prefix><experts>.<part>" as of StoredLayout::kExpertColumns,
  // and "<prefix><experts>.<part>_bias" [num_experts, out_features]. `parts`: an expert's, of one name.
  // `parts_of_one`: those of a file that has tensors as experts() does.
  void fused_experts(const Experts& experts, std::initializer_list<Part> parts,
                     std::initializer_list<Part> parts_of_one, int64_t in_features, bool bias,
                     ShardAxis shard, std::vector<Linear>& into);

 private:
  std::vector<WeightPart> parts_per_expert(const Experts& experts, std::initializer_list<Part> parts) const;
  std::string name_of(std::string_view name, std::string_view kind) const {
    return prefix_ + std::string(name) + std::string(kind);
  }

  std::string prefix_;
  std::vector<WeightSlot>& slots_;
  bool zero_centered_norms_;
};

// Bytes of all plain parts in an arena where weights are `dtype`.
size_t num_bytes(std::span<const WeightSlot> slots, DType dtype);

}  // namespace attend
