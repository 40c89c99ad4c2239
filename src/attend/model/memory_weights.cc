#include <algorithm>
#include <functional>
#include <iterator>

#include "attend/kernels/common/fill_random.h"
#include "attend/model/dummy_part.h"
#include "attend/model/place_weights.h"
#include "attend/tensor/arena.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

constexpr float kDummyDeviation = 0.02f;

// Writes the elements of a part to `to`, which is flat.
using WritePart = std::function<void(size_t slot_idx, size_t part, const TensorView& to)>;

// Every plain slot in one arena, others with random weights beside it: on a GPU its parts one after another,
// as one tensor; in host memory as they are in files.
LoadedWeights place_in_memory(std::span<const WeightSlot> slots, DType dtype, Device device,
                              std::string_view owner, const LoadProgress& progress, const WritePart& write,
                              const Quantization& quantization = {}) {
  const bool joins = device.type == DeviceType::kCuda;
  LoadedWeights weights;
  const size_t total_bytes = num_bytes(slots, dtype);
  Arena arena(total_bytes, owner, device);
  size_t done_bytes = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    const WeightSlot& slot = slots[i];
    const DType placed_dtype = slot.placed_dtype(dtype);
    std::vector<Weight> placed;
    Tensor flat;
    int64_t first = 0;
    if (joins) flat = arena.allocate({slot.num_elements()}, placed_dtype);
    for (size_t part = 0; part < slot.parts.size(); ++part) {
      if (slot.parts[part].storage != WeightStorage::kPlain) {
        QuantisedPart made = make_dummy_part(slot, slot.parts[part], quantization);
        placed.push_back(made.weight);
        std::ranges::move(made.tensors, std::back_inserter(weights.tensors));
        weights.num_bytes += made.weight.num_bytes();
        continue;
      }
      const int64_t count = slot.part_elements(part);
      if (!joins) flat = arena.allocate({count}, placed_dtype);
      const TensorView elements = flat.view().slice(0, first, first + count);
      write(i, part, elements);
      if (joins) first += count;
      if (!joins)
        placed.emplace_back(TensorView::contiguous(elements.data, placed_dtype, slot.part_shape(part)));
      weights.tensors.push_back(flat);
      weights.num_bytes += elements.num_bytes();
      done_bytes += Arena::padded_bytes(elements.num_bytes());
      if (progress) progress(done_bytes, total_bytes);
    }
    if (joins)
      placed.emplace_back(TensorView::contiguous(flat.view().data, placed_dtype, slot.shape(), device));
    slot.place(placed);
  }
  return weights;
}

}  // namespace

LoadedWeights upload_weights(std::span<const WeightSlot> slots, const ModelWeights& files, DType dtype,
                             Device device, const LoadProgress& progress) {
  cuda::OwnedStream owned_stream(device);
  Stream& stream = owned_stream.get();
  return place_in_memory(
      slots, dtype, device, "weights", progress, [&](size_t slot_idx, size_t part, const TensorView& to) {
        const WeightSlot& slot = slots[slot_idx];
        const Tensor stored = files.tensor(slot.parts[part].name);
        const Tensor host = converted(placed_tensor(slot, stored), slot.placed_dtype(dtype));
        cuda::copy(host.view().reshape({to.num_elements()}), to, stream);
        cuda::synchronize(stream);  // before the converted copy goes
      });
}

std::vector<kernels::RandomNormal> dummy_numbers(std::span<const WeightSlot> slots) {
  std::vector<kernels::RandomNormal> numbers;
  uint64_t first = 0;
  for (const WeightSlot& slot : slots) {
    numbers.push_back(
        {.first = first, .mean = slot.use == WeightUse::kNorm ? 1.0f : 0.0f, .deviation = kDummyDeviation});
    // Elements count on across tensors, so that no two tensors are alike.
    first += static_cast<uint64_t>(slot.num_elements());
  }
  return numbers;
}

LoadedWeights make_dummy_weights(std::span<const WeightSlot> slots, DType dtype, Device device,
                                 const LoadProgress& progress, const Quantization& quantization) {
  std::vector<kernels::RandomNormal> numbers = dummy_numbers(slots);
  std::optional<cuda::OwnedStream> owned_stream;
  if (device.type == DeviceType::kCuda) owned_stream.emplace(device);
  Stream cpu;
  Stream& stream = owned_stream ? owned_stream->get() : cpu;
  const std::string_view owner = owned_stream ? "weights" : "dummy weights";
  return place_in_memory(
      slots, dtype, device, owner, progress,
      [&](size_t slot_idx, size_t, const TensorView& to) {
        kernels::fill_random(to, numbers[slot_idx], stream);
        numbers[slot_idx].first += static_cast<uint64_t>(to.num_elements());
        if (owned_stream) cuda::synchronize(stream);
      },
      quantization);
}

}  // namespace attend
