#include <algorithm>
#include <functional>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/model/place_weights.h"
#include "attend/tensor/arena.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

constexpr float kDummyDeviation = 0.02f;
constexpr int64_t kConvertedRunElements = 1 << 16;

// The elements as `dtype`, in host memory.
Tensor converted(const Tensor& from, DType dtype) {
  if (from.dtype() == dtype) return from;
  const int64_t count = from.view().num_elements();
  const Tensor made = Tensor::empty({count}, dtype);
  visit_float_dtype(dtype, [&]<class To>(TypeTag<To>) {
    visit_float_dtype(from.dtype(), [&]<class From>(TypeTag<From>) {
      const From* const source = from.as<From>();
      To* const target = made.as<To>();
      parallel_for(ceil_div(count, kConvertedRunElements), [&](int64_t run, int) {
        const int64_t end = std::min(count, (run + 1) * kConvertedRunElements);
        for (int64_t i = run * kConvertedRunElements; i < end; ++i)
          target[i] = To(static_cast<float>(source[i]));
      });
    });
  });
  return made;
}

// Writes the elements of a part to `to`, which is flat.
using WritePart = std::function<void(size_t slot_idx, size_t part, const TensorView& to)>;

// Every slot in one arena: on a GPU its parts one after another, as one tensor; in host memory as they are in
// files.
LoadedWeights place_in_memory(std::span<const WeightSlot> slots, DType dtype, Device device,
                              std::string_view owner, const LoadProgress& progress, const WritePart& write) {
  const bool joins = device.type == DeviceType::kCuda;
  LoadedWeights weights;
  const size_t total_bytes = num_bytes(slots, dtype);
  Arena arena(total_bytes, owner, device);
  size_t done_bytes = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    const WeightSlot& slot = slots[i];
    std::vector<Weight> placed;
    Tensor flat;
    int64_t first = 0;
    if (joins) flat = arena.allocate({slot.num_elements()}, dtype);
    for (size_t part = 0; part < slot.parts.size(); ++part) {
      const int64_t count = slot.part_elements(part);
      if (!joins) flat = arena.allocate({count}, dtype);
      const TensorView elements = flat.view().slice(0, first, first + count);
      write(i, part, elements);
      if (joins) first += count;
      if (!joins) placed.emplace_back(TensorView::contiguous(elements.data, dtype, slot.part_shape(part)));
      weights.tensors.push_back(flat);
      weights.num_bytes += elements.num_bytes();
      done_bytes += Arena::padded_bytes(elements.num_bytes());
      if (progress) progress(done_bytes, total_bytes);
    }
    if (joins) placed.emplace_back(TensorView::contiguous(flat.view().data, dtype, slot.shape(), device));
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
        const Tensor host = converted(files.tensor(slots[slot_idx].parts[part].name), dtype);
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
                                 const LoadProgress& progress) {
  std::vector<kernels::RandomNormal> numbers = dummy_numbers(slots);
  std::optional<cuda::OwnedStream> owned_stream;
  if (device.type == DeviceType::kCuda) owned_stream.emplace(device);
  Stream cpu;
  Stream& stream = owned_stream ? owned_stream->get() : cpu;
  const std::string_view owner = owned_stream ? "weights" : "dummy weights";
  return place_in_memory(slots, dtype, device, owner, progress,
                         [&](size_t slot_idx, size_t, const TensorView& to) {
                           kernels::fill_random(to, numbers[slot_idx], stream);
                           numbers[slot_idx].first += static_cast<uint64_t>(to.num_elements());
                           if (owned_stream) cuda::synchronize(stream);
                         });
}

}  // namespace attend
