#include "attend/model/weights/join_parts.h"

#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/math.h"

namespace attend {
namespace {

constexpr uint8_t kMiddle = 8;  // zero point of symmetric weights

// Expands the f32 scales to one row per output.
Tensor output_scales(const Weight& weight) {
  const int64_t columns = weight.scales.shape[1];
  const Tensor result = Tensor::empty({weight.out_features(), columns}, DType::kF32);
  for (int64_t out = 0; out < weight.out_features(); ++out)
    std::copy_n(weight.scales[out / weight.group_outs].as<const float>(), columns,
                result.view()[out].as<float>());
  return result;
}

// Returns whether rows of `other` can follow rows of `one`. Blocks must have the same number of outputs.
bool same_groups(const Weight& one, const Weight& other) {
  const auto ins = [](const Weight& weight) { return std::min(weight.group_ins, weight.in_features()); };
  const bool has_blocks = one.group_outs > 1 && one.group_outs < one.out_features();
  return one.format == other.format && ins(one) == ins(other) && one.scales.dtype == other.scales.dtype &&
         (!has_blocks || one.group_outs == other.group_outs);
}

bool in_order(const Weight& weight) { return weight.input_order.empty(); }

}  // namespace

bool is_loaded_quantized(const WeightSlot& slot, const WeightPart& part) {
  return part.storage != WeightStorage::kPlain && !slot.dequantize_on_load;
}

size_t device_bytes(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization) {
  const int64_t rows = part.rows, columns = slot.columns;
  const Quantization& own = weight_kind(quantization, part.kind);
  const int64_t ins = own.group_ins > 0 ? own.group_ins : columns;
  const auto padded = [](int64_t bytes) { return Arena::padded_bytes(static_cast<size_t>(bytes)); };
  constexpr int64_t kF32 = sizeof(float), kI32 = sizeof(int32_t);
  const int64_t groups = rows * ceil_div(columns, ins);
  switch (part.storage) {
    case WeightStorage::kPlain:
      break;
    case WeightStorage::kFp8:
    case WeightStorage::kInt8:
    case WeightStorage::kPackedInt8:
    case WeightStorage::kGptqInt8:
      return padded(rows * columns) + padded(groups * kF32);
    case WeightStorage::kPackedInt4:
    case WeightStorage::kGptq:
    case WeightStorage::kAwq:
      return padded(rows * columns / 2) + padded(groups * kF32) + padded(groups) + padded(columns * kI32);
    case WeightStorage::kMxFp4:
    case WeightStorage::kPackedMxFp4:
      return padded(rows * columns / 2) + padded(groups);
    case WeightStorage::kBlocks:
      break;  // rejected on GPUs
  }
  return 0;
}

bool can_join(std::span<const LoadedPart> parts) {
  return std::ranges::all_of(parts, [&](const LoadedPart& part) {
    return in_order(part.weight) && same_groups(parts.front().weight, part.weight);
  });
}

JoinedWeight::JoinedWeight(const Weight& first, int64_t num_rows, int64_t part_rows, Arena& arena, Copy copy,
                           int64_t num_experts)
    : arena_(arena), copy_(std::move(copy)), weight_(first), num_experts_(num_experts) {
  const bool joins = num_rows != first.out_features();
  const bool whole_blocks = first.group_outs < first.out_features() && part_rows % first.group_outs == 0;
  if (joins && !whole_blocks) weight_.group_outs = 1;
  weight_.data = allocate({num_rows, first.data.shape[1]}, first.data.dtype);
  weight_.scales =
      allocate({ceil_div(num_rows, weight_.group_outs), first.scales.shape[1]}, first.scales.dtype);
  weight_.zeros = {};
  if (in_order(first)) return;
  if (num_experts_ > 1)
    weight_.input_order = allocate({num_experts_, first.in_features()}, DType::kI32);
  else
    weight_.input_order = allocate({first.in_features()}, DType::kI32);
}

const TensorView& JoinedWeight::allocate(std::initializer_list<int64_t> shape, DType dtype) {
  return tensors_.emplace_back(arena_.allocate(shape, dtype)).view();
}

void JoinedWeight::add_zeros(const Weight& part) {
  if (part.zeros.empty() && weight_.zeros.empty()) return;
  if (weight_.zeros.empty()) {
    weight_.zeros = allocate({weight_.scales.shape[0], weight_.scales.shape[1]}, DType::kU8);
    const Tensor middle = Tensor::empty({weight_.scales.shape[0], weight_.scales.shape[1]}, DType::kU8);
    std::ranges::fill(middle.span<uint8_t>(), kMiddle);
    copy_(middle, weight_.zeros);
  }
  if (!part.zeros.empty())
    copy_(part.zeros, weight_.zeros.slice(0, num_added_, num_added_ + part.out_features()));
}

// Stores one order per expert, since its gate and up have the same inputs.
void JoinedWeight::add_order(const Weight& part, const std::string& name) {
  if (in_order(part)) return;
  const View<const int32_t> order = part.input_order.span<const int32_t>();
  const int64_t rows_per_expert = weight_.out_features() / num_experts_;
  const bool begins = num_added_ % rows_per_expert == 0;
  if (!begins && !std::ranges::equal(order, order_))
    fail(ErrorCode::kUnsupported, name,
         ": input order differs from the expert's gate: a GPU requires the same order");
  if (!begins) return;
  order_.assign(order.begin(), order.end());
  const int64_t expert = num_added_ / rows_per_expert;
  copy_(part.input_order, num_experts_ > 1 ? weight_.input_order[expert] : weight_.input_order);
}

void JoinedWeight::add(const Weight& part, const std::string& name) {
  const int64_t end = num_added_ + part.out_features();
  const bool is_only_part = end - num_added_ == weight_.out_features();
  const bool orders_fit = in_order(part) == in_order(weight_) && (in_order(part) || num_experts_ > 1);
  if (!is_only_part && !(same_groups(weight_, part) && orders_fit))
    fail(ErrorCode::kUnsupported, name, ": ", part, " with scales in ", part.scales.dtype,
         in_order(part) ? "" : " and reordered inputs", ": a GPU requires all parts as ", weight_,
         " with scales in ", weight_.scales.dtype,
         in_order(weight_) ? " and inputs in order" : " and reordered inputs");
  copy_(part.data, weight_.data.slice(0, num_added_, end));
  const bool spreads = part.group_outs != weight_.group_outs;
  const Tensor spread = spreads ? output_scales(part) : Tensor();
  const TensorView scales = spreads ? spread.view() : part.scales;
  const int64_t first_scale = num_added_ / weight_.group_outs;
  copy_(scales, weight_.scales.slice(0, first_scale, first_scale + scales.shape[0]));
  add_zeros(part);
  add_order(part, name);
  num_added_ = end;
}

}  // namespace attend
