// WeightSlot: a matrix or vector of a model, with the tensors of a checkpoint that it consists of and the
// callback that sets it in the model.
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

// Use of a weight. Determines its dummy values and its cost per step.
enum class WeightUse : uint8_t {
  kTable,   // row lookup
  kLinear,  // multiplies every token
  kRouter,  // multiplies every token; usually not quantized in quantized checkpoints
  kHead,    // multiplies the tokens with requested logits
  kBias,    // vector of a linear layer
  kNorm,    // vector with values around 1
};

// Rows of a slot that are rows of one tensor of the checkpoint. A tensor with several matrices, such as q, k
// and v, is several parts.
struct WeightPart {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  int64_t rows = 0;
  // Index of the part's first row in the tensor, and number of rows of the tensor (of all experts). If
  // tensor_rows is 0, the tensor has exactly the part's rows.
  int64_t first_row = 0, tensor_rows = 0;
  // Rows that stay on one rank: those of a head.
  int64_t unit_rows = 1;
  // If there are fewer units than ranks, several ranks have the same unit: heads of K and V.
  bool is_replicated = false;
  // Ranks divide the parts of one name instead of each part's rows: this is part `set_idx` of `set_size`.
  // With fewer parts than ranks, several ranks have the same part, and divide its rows unless it is
  // replicated. 0: they do not.
  int set_idx = 0, set_size = 0;
  // Stored format, and names of the tensors of a quantized part (quantized_tensor.h).
  WeightStorage storage = WeightStorage::kPlain;
  std::vector<std::string> tensors = {};
  size_t kind = 0;  // index for weight_kind() of the files' quantization

  std::span<const std::string> tensor_names() const {
    return storage == WeightStorage::kPlain ? std::span(&name, 1) : std::span(tensors);
  }
};

// Layout of rows and columns in the tensor of a part.
enum class StoredLayout : uint8_t {
  kRows,           // [rows, columns]; a vector: [rows]
  kExpertRows,     // [num_experts, rows per expert, columns]; vectors: [num_experts, rows per expert]
  kExpertColumns,  // [num_experts, columns, rows per expert]: transposed at load
  kConvolution,    // [rows, 1, columns]: channels and taps
  kColumns,        // [columns, rows]: transposed at load; a vector: [rows]
  kOneRow,         // [1, rows]: vector
  kBroadcast,      // [1, 1, rows, 1]: vector with the axes of an activation
  kScalar,         // []: vector of one element, which may be infinite
  kPatches,        // [rows, WeightSlot::patch_axes]: the last axes are columns
};

struct WeightSlot {
  // Consecutive rows of the slot. On a device with its own memory, parts are joined. In host memory, each
  // part stays separate, except those of convolutions.
  std::vector<WeightPart> parts = {};
  // Alternative parts for files with one tensor per expert instead of one for all. Empty: no alternative.
  std::vector<WeightPart> parts_per_expert = {};
  // Rows of gate and up alternate in `parts`, and are separate in `parts_per_expert`.
  bool alternates = false;
  int64_t columns = 0;  // 0: vector
  // Index of the slot's first column in the tensors, and columns of the tensors. 0: same as the slot.
  int64_t first_column = 0, tensor_columns = 0;
  int64_t unit_columns = 1;  // columns that stay on one rank
  WeightUse use = WeightUse::kLinear;
  ShardAxis shard = ShardAxis::kNone;  // axis that ranks divide; applied by shard()
  // kOutFeatures: ranks divide the rows by balanced_bounds(), whatever their number.
  bool balanced = false;
  // Bias that is added to the sum of all ranks, so that only rank 0 has it if ranks divide the slot before
  // this one.
  bool of_sum = false;
  // Norm with weights around 0 that multiplies by 1 + weight. Loaded as this sum in float32: in bfloat16 the
  // sum would round small weights away.
  bool zero_centered = false;
  // Multiplies the weights of a norm at load. If it is not 1, the result is in float32.
  float scale = 1.0f;
  // Loads the vector in float32, regardless of the dtype of other weights.
  bool in_f32 = false;
  StoredLayout layout = StoredLayout::kRows;
  std::vector<int64_t> patch_axes = {};  // kPatches
  // Joins parts without quantization in host memory too.
  bool joins_parts = false;
  // Loads a quantized weight as float32. For weights that are multiplied per head, by kernels without
  // quantized formats.
  bool dequantize_on_load = false;
  // Number of experts with consecutive rows, and number of them that run for a token. 1 and 1: all rows apply
  // to every token.
  int num_experts = 1, experts_per_token = 1;
  // Layers that `place` fills, if adapters may change them; null: they may not.
  std::vector<Linear>* adapted = nullptr;
  // Sets the weights in the model: one joined weight, or one per part. For a vector, only `data` is set.
  std::function<void(std::span<const Weight>)> place = {};

  int64_t rows() const;
  // Dtype in memory if weights are loaded as `dtype`.
  DType loaded_dtype(DType dtype) const {
    return zero_centered || scale != 1.0f || in_f32 ? DType::kF32 : dtype;
  }
  int64_t num_elements() const { return rows() * (columns > 0 ? columns : 1); }
  std::vector<int64_t> shape() const { return shape_with_rows(rows()); }
  std::vector<int64_t> part_shape(size_t part) const { return shape_with_rows(parts[part].rows); }
  int64_t part_elements(size_t part) const { return parts[part].rows * (columns > 0 ? columns : 1); }

 private:
  std::vector<int64_t> shape_with_rows(int64_t num_rows) const;
};

// Returns num_ranks + 1 bounds of ranges of about the same size: multiples of 64, if there are enough for all
// ranks.
std::vector<int64_t> balanced_bounds(int64_t size, int num_ranks);

// Returns the slot as rank `rank` of `num_ranks` loads it: its rows of each part, its columns, or all of it,
// depending on slot.shard. Parts with consecutive rows of a tensor are merged, so a single rank has one part
// per tensor. If units cannot be divided evenly, throws Error(kUnsupported) with the tensor.
WeightSlot shard(WeightSlot slot, int rank, int num_ranks);

// Properties of all norms and linear layers of a model.
struct StoredForm {
  bool zero_centered_norms = false;
  bool norm_weights = true, norm_biases = false;  // LayerNorms have them
  bool transposed_linears = false;
};

// Writes the slots of a module with a common prefix of tensor names. The targets of slots must outlive them
// and keep their addresses.
class SlotWriter {
 public:
  // `takes_adapters`: linear layers apply the adapters of a step, except routers and dequantized ones.
  SlotWriter(std::string prefix, std::vector<WeightSlot>& slots, const StoredForm& form = {},
             bool takes_adapters = false)
      : prefix_(std::move(prefix)), slots_(slots), form_(form), takes_adapters_(takes_adapters) {}

  // Part of a linear layer: "<prefix><name>.weight" and, with a bias, ".bias". Parts with the same name are
  // rows of one tensor, in this order unless they have tensor_rows.
  struct Part {
    std::string_view name;
    int64_t out_features;
    int64_t unit = 1;  // same as WeightPart::unit_rows
    bool is_replicated = false;
    int64_t first_row = 0, tensor_rows = 0;  // same as in WeightPart
    int set_idx = 0, set_size = 0;           // same as in WeightPart
  };
  struct Inputs {
    Inputs(int64_t num_features, int64_t rank_unit = 1)  // NOLINT: implicit from a number of features
        : features(num_features), unit(rank_unit) {}
    int64_t features, unit;  // unit: same as WeightSlot::unit_columns
  };

  void norm(std::string_view name, int64_t size, TensorView& into, float scale = 1.0f);
  // Norm of the residual stream, of into.kind: "<prefix><name>.weight" and ".bias", as far as the model has
  // them.
  void norm(std::string_view name, int64_t size, kernels::Norm& into, float scale = 1.0f);
  // "<prefix><name>.bias" of a LayerNorm.
  void norm_bias(std::string_view name, int64_t size, TensorView& into, float scale = 1.0f);
  // Norms of heads with a row of weights each: "<prefix><name>.weight" [num_heads, head_dim] or, if the name
  // contains a star, a tensor [head_dim] per head with its index instead of the star.
  void head_norms(std::string_view name, int num_heads, int64_t head_dim, TensorView& into);
  // Norm that multiplies by its weights, also in models with zero-centered norms.
  void gated_norm(std::string_view name, int64_t size, TensorView& into);
  // "<prefix><name>": a vector of factors around 1 that is loaded in float32.
  void factors(std::string_view name, int64_t size, TensorView& into, float scale = 1.0f);
  // Depthwise convolution of the parts' channels, loaded in float32 as [channels, taps]. Each tensor
  // "<prefix><name>.weight" is [channels, 1, taps].
  void convolution(std::initializer_list<Part> parts, int64_t taps, TensorView& into);
  // "<prefix><name>": a bias that is loaded in float32.
  void vector_in_f32(std::string_view name, int64_t size, TensorView& into,
                     ShardAxis shard = ShardAxis::kNone, StoredLayout layout = StoredLayout::kRows);
  // "<prefix><name>.bias": bias of a matrix() for kHead.
  void bias(std::string_view name, int64_t size, TensorView& into);
  // Convolution of patches that do not overlap, as a linear layer of their pixels: "<prefix><name>.weight" is
  // [out_features, patch_axes] and, with a bias, ".bias".
  void patches(std::string_view name, int64_t out_features, std::vector<int64_t> patch_axes, bool bias,
               std::vector<Linear>& into);
  // Matrix [rows, columns] for kTable or kHead. Ranks divide the rows of a head.
  void matrix(std::string_view name, int64_t rows, int64_t columns, WeightUse use, Weight& into);
  // Fills `into` with one Linear, or one per part.
  void linear(const std::vector<Part>& parts, Inputs inputs, bool bias, ShardAxis shard,
              std::vector<Linear>& into, bool dequantize_on_load = false, WeightUse use = WeightUse::kLinear);
  // "<prefix><name>": a number, loaded in float32.
  void scalar(std::string_view name, TensorView& into);
  // "<prefix><name>": tables of `columns` features, [num_tables, rows, columns], as one matrix [num_tables,
  // rows
  // * columns].
  void tables(std::string_view name, int64_t num_tables, int64_t rows, int64_t columns, Weight& into);
  // Linear layer without a bias: "<prefix><name>" is [in_features, out_features].
  void transposed(std::string_view name, int64_t out_features, int64_t in_features,
                  std::vector<Linear>& into);
  // Same for experts, without biases: "<prefix><experts>.<expert>.<part>.weight", first the parts of expert
  // 0, then those of expert 1, ...
  struct Experts {
    std::string_view name;
    int num_experts;
    int per_token;
  };
  void experts(const Experts& experts, std::initializer_list<Part> parts, int64_t in_features,
               ShardAxis shard, std::vector<Linear>& into);
  // Same for experts that share a tensor: "<prefix><experts>.<part>" with this layout, and
  // "<prefix><experts>.<part>_bias" [num_experts, out_features]. `parts`: parts of one expert, with the same
  // name. `expert_parts`: parts in a file with separate tensors per expert, as in experts().
  void fused_experts(const Experts& experts, std::initializer_list<Part> parts,
                     std::initializer_list<Part> expert_parts, int64_t in_features, bool bias,
                     ShardAxis shard, std::vector<Linear>& into,
                     StoredLayout layout = StoredLayout::kExpertColumns);

 private:
  std::vector<WeightPart> parts_per_expert(const Experts& experts, std::initializer_list<Part> parts,
                                           std::string_view kind = ".weight") const;
  std::string tensor_name(std::string_view name, std::string_view kind) const {
    return prefix_ + std::string(name) + std::string(kind);
  }

  std::string prefix_;
  std::vector<WeightSlot>& slots_;
  StoredForm form_;
  bool takes_adapters_;
};

// Arena bytes of all parts without quantization if weights are loaded as `dtype`.
size_t num_bytes(std::span<const WeightSlot> slots, DType dtype);

}  // namespace attend
