#include "attend/kernels/common/fill_random.h"
#include "attend/model/fill_weights.h"
#include "attend/tensor/arena.h"

namespace attend {
namespace {

constexpr float kDeviation = 0.02f;

size_t bytes_of(const WeightSlot& slot, DType dtype) {
  return TensorView::contiguous(nullptr, dtype, slot.shape).num_bytes();
}

}  // namespace

std::vector<kernels::RandomNormal> dummy_numbers(std::span<const WeightSlot> slots) {
  std::vector<kernels::RandomNormal> numbers;
  uint64_t first = 0;
  for (const WeightSlot& slot : slots) {
    numbers.push_back({.first = first, .mean = slot.is_norm ? 1.0f : 0.0f, .deviation = kDeviation});
    // Elements count on across tensors, so that no two tensors are alike.
    first += static_cast<uint64_t>(TensorView::contiguous(nullptr, DType::kF32, slot.shape).num_elements());
  }
  return numbers;
}

void make_dummy_weights(std::span<const WeightSlot> slots, DType dtype, const LoadProgress& progress) {
  size_t total_bytes = 0, done_bytes = 0;
  for (const WeightSlot& slot : slots) total_bytes += Arena::padded_bytes(bytes_of(slot, dtype));
  Arena arena(total_bytes, "dummy weights");
  const std::vector<kernels::RandomNormal> numbers = dummy_numbers(slots);
  Stream cpu;
  for (size_t i = 0; i < slots.size(); ++i) {
    const WeightSlot& slot = slots[i];
    const Tensor flat = arena.allocate({static_cast<int64_t>(bytes_of(slot, dtype) / size_of(dtype))}, dtype);
    *slot.tensor = Tensor(TensorView::contiguous(flat.view().data, dtype, slot.shape), flat.storage());
    kernels::fill_random(*slot.tensor, numbers[i], cpu);
    done_bytes += Arena::padded_bytes(bytes_of(slot, dtype));
    if (progress) progress(done_bytes, total_bytes);
  }
}

}  // namespace attend
