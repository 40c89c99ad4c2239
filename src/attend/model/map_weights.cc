#include <algorithm>

#include "attend/base/error.h"
#include "attend/model/check_finite.h"
#include "attend/model/place_weights.h"

namespace attend {
namespace {

std::string shape_string(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Tensor checked_tensor(const WeightSlot& slot, size_t part, const ModelWeights& files) {
  const std::string& name = slot.parts[part].name;
  const Tensor tensor = files.tensor(name);
  const TensorView& view = tensor.view();
  const std::span<const int64_t> shape(view.shape.data(), static_cast<size_t>(view.rank));
  const std::vector<int64_t> expected = slot.part_shape(part);
  if (!std::ranges::equal(shape, expected))
    fail(ErrorCode::kCorruptFile, files.where(name), ": shape ", shape_string(shape), ": expected ",
         shape_string(expected), " by config.json");
  if (view.dtype != DType::kF32 && view.dtype != DType::kF16 && view.dtype != DType::kBF16)
    fail(ErrorCode::kUnsupported, files.where(name), ": dtype ", view.dtype,
         ": attend has weights in float32, float16, bfloat16");
  return tensor;
}

}  // namespace

LoadedWeights map_weights(std::span<const WeightSlot> slots, ModelWeights files,
                          const LoadProgress& progress) {
  LoadedWeights weights;
  for (const WeightSlot& slot : slots) {
    std::vector<Weight> placed;
    for (size_t part = 0; part < slot.parts.size(); ++part) {
      weights.tensors.push_back(checked_tensor(slot, part, files));
      placed.emplace_back(weights.tensors.back());
      weights.num_bytes += placed.back().num_bytes();
    }
    slot.place(placed);
  }
  size_t done_bytes = 0;
  auto tensor = weights.tensors.begin();
  for (const WeightSlot& slot : slots)
    for (const WeightPart& part : slot.parts) {
      files.fetch(part.name, [&](size_t bytes) {
        done_bytes += bytes;
        if (progress) progress(done_bytes, weights.num_bytes);
      });
      check_finite(*tensor++, files.where(part.name));
    }
  weights.files = std::move(files);
  return weights;
}

}  // namespace attend
