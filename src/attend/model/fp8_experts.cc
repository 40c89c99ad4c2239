#include "attend/model/fp8_experts.h"

#include <algorithm>
#include <array>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/model/check_finite.h"
#include "attend/model/place_weights.h"
#include "attend/model/shape_text.h"

namespace attend {
namespace {

constexpr std::array<std::string_view, 3> kScaleEndings = {"_weight_scale", "_scale_inv", "_scale"};

// How many outputs and inputs share a scale, and how far apart the scales of neighbouring experts, groups of
// outputs and groups of inputs stand.
struct ScalesOfExperts {
  int64_t group_outs, group_ins;
  int64_t expert_step, out_step, in_step;
};

ScalesOfExperts scales_of(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                          const ModelWeights& files) {
  const std::string& name = part.tensors.front();
  const Tensor scales = files.tensor(name);
  const TensorView& view = scales.view();
  const Shape shape = shape_of(view);
  const int64_t experts = slot.num_experts, ins = slot.columns, outs = part.rows / experts;
  const int64_t block_outs = quantization.group_outs, block_ins = quantization.group_ins;
  if (view.dtype != DType::kF32 && view.dtype != DType::kF16 && view.dtype != DType::kBF16)
    fail(ErrorCode::kUnsupported, files.where(name), ": dtype ", view.dtype,
         ": attend has float32, float16, bfloat16 with ", quantization.method);
  if (block_outs > 0) {
    const int64_t columns = ceil_div(outs, block_outs), rows = ceil_div(ins, block_ins);
    if (shape == Shape{experts, rows, columns}) return {block_outs, block_ins, rows * columns, 1, columns};
  } else {
    if (view.num_elements() == 1) return {outs, ins, 0, 0, 0};
    if (shape == Shape{experts} || shape == Shape{experts, 1, 1}) return {outs, ins, 1, 0, 0};
    if (shape == Shape{experts, 1, outs}) return {1, ins, outs, 1, 0};
  }
  std::string expected = "[1], " + text_of(Shape{experts, 1, 1}) + " or " + text_of(Shape{experts, 1, outs});
  if (block_outs > 0)
    expected = text_of(Shape{experts, ceil_div(ins, block_ins), ceil_div(outs, block_outs)}) +
               " of blocks of " + std::to_string(block_outs) + " x " + std::to_string(block_ins);
  fail(ErrorCode::kCorruptFile, files.where(name), ": shape ", text_of(shape), ": expected ", expected,
       " by config.json");
}

}  // namespace

bool shares_fp8_experts(const WeightSlot& slot, const Quantization& quantization) {
  return quantization.storage == WeightStorage::kFp8 && slot.layout == StoredLayout::kExpertColumns;
}

std::vector<std::string> fp8_expert_tensors(const WeightPart& part, const ModelWeights& files) {
  for (const std::string_view ending : kScaleEndings)
    if (std::string scales = part.name + std::string(ending); files.contains(scales))
      return {std::move(scales), part.name};
  return {};
}

void check_fp8_experts(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                       const ModelWeights& files) {
  const Tensor codes = files.tensor(part.name);
  const Shape shape = shape_of(codes);
  const Shape expected = {slot.num_experts, slot.columns, part.rows / slot.num_experts};
  if (codes.dtype() != DType::kF8E4M3)
    fail(ErrorCode::kUnsupported, files.where(part.name), ": dtype ", codes.dtype(), ": attend has ",
         DType::kF8E4M3, " with ", quantization.method);
  if (shape != expected)
    fail(ErrorCode::kCorruptFile, files.where(part.name), ": shape ", text_of(shape), ": expected ",
         text_of(expected), " by config.json");
  scales_of(slot, part, quantization, files);
}

QuantisedPart read_fp8_experts(const WeightSlot& slot, const WeightPart& part,
                               const Quantization& quantization, const ModelWeights& files) {
  const ScalesOfExperts of = scales_of(slot, part, quantization, files);
  const Tensor stored = files.tensor(part.name), stored_scales = files.tensor(part.tensors.front());
  check_finite(stored, files.where(part.name));
  check_finite(stored_scales, files.where(part.tensors.front()));
  const Tensor data = placed_tensor(slot, stored), wide = converted(stored_scales, DType::kF32);
  // A row of scales for each output: groups of outputs need not divide an expert's.
  const int64_t outs = part.rows / slot.num_experts, columns = ceil_div(slot.columns, of.group_ins);
  const bool whole = of.group_outs < outs && outs % of.group_outs == 0;
  const int64_t group_outs = whole ? of.group_outs : 1;
  const Tensor scales = Tensor::empty({part.rows / group_outs, columns}, DType::kF32);
  for (int64_t row = 0; row < part.rows / group_outs; ++row) {
    const int64_t expert = row * group_outs / outs, group = row * group_outs % outs / of.group_outs;
    for (int64_t column = 0; column < columns; ++column)
      scales.as<float>()[row * columns + column] =
          wide.as<const float>()[expert * of.expert_step + group * of.out_step + column * of.in_step];
  }
  Weight weight(TensorView::contiguous(data.view().data, DType::kF8E4M3, {part.rows, slot.columns}));
  weight.format = WeightFormat::kFp8;
  weight.scales = scales;
  weight.group_outs = group_outs;
  weight.group_ins = of.group_ins;
  return {weight, {data, scales}};
}

}  // namespace attend
