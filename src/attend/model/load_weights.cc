#include <algorithm>

#include "attend/base/error.h"
#include "attend/model/check_finite.h"
#include "attend/model/fill_weights.h"

namespace attend {
namespace {

std::string shape_string(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

void check_fits(const WeightSlot& slot, const ModelWeights& files) {
  const TensorView& view = slot.tensor->view();
  const std::span<const int64_t> shape(view.shape.data(), static_cast<size_t>(view.rank));
  if (!std::equal(shape.begin(), shape.end(), slot.shape.begin(), slot.shape.end()))
    fail(ErrorCode::kCorruptFile, files.where(slot.name), ": shape ", shape_string(shape), ": expected ",
         shape_string(slot.shape), " by config.json");
  if (view.dtype != DType::kF32 && view.dtype != DType::kF16 && view.dtype != DType::kBF16)
    fail(ErrorCode::kUnsupported, files.where(slot.name), ": dtype ", view.dtype,
         ": attend has weights in float32, float16, bfloat16");
}

}  // namespace

void load_weights(std::span<const WeightSlot> slots, const ModelWeights& files,
                  const LoadProgress& progress) {
  size_t total_bytes = 0, done_bytes = 0;
  for (const WeightSlot& slot : slots) {
    *slot.tensor = files.tensor(slot.name);
    check_fits(slot, files);
    total_bytes += slot.tensor->view().num_bytes();
  }
  for (const WeightSlot& slot : slots) {
    files.fetch(slot.name, [&](size_t bytes) {
      done_bytes += bytes;
      if (progress) progress(done_bytes, total_bytes);
    });
    check_finite(*slot.tensor, files.where(slot.name));
  }
}

}  // namespace attend
