#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>

#include "attend/base/error.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/model/weights/join_parts.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/quantized/quantized_tensor.h"
#include "attend/model/weights/read_part.h"
#include "attend/model/weights/staged_upload.h"
#include "attend/tensor/arena.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

constexpr float kDummyDeviation = 0.02f;

// Writes the elements of a part to the one-dimensional tensor `to`.
using WritePart = std::function<void(size_t slot_idx, size_t part, const TensorView& to)>;

// Reads a quantized part into host memory.
using ReadQuantized = std::function<LoadedPart(size_t slot_idx, size_t part)>;

// Loads slots with quantized parts into GPU memory.
class QuantizedSlots {
 public:
  QuantizedSlots(std::span<const WeightSlot> slots, DType dtype, Arena& arena, const WritePart& write,
                 const ReadQuantized& read, Stream& stream)
      : slots_(slots), dtype_(dtype), arena_(arena), write_(write), read_(read), stream_(stream) {}

  bool applies_to(const WeightSlot& slot) const {
    return std::ranges::any_of(slot.parts,
                               [&](const WeightPart& part) { return is_loaded_quantized(slot, part); });
  }
  // Returns one joined weight, or one weight per part. Adds their memory to `tensors`.
  std::vector<Weight> place(size_t slot_idx, std::vector<Tensor>& tensors) const {
    const WeightSlot& slot = slots_[slot_idx];
    if (slot.num_experts > 1 || slot.parts.size() == 1) return {join_as_read(slot_idx, tensors)};
    std::vector<LoadedPart> parts(slot.parts.size());
    bool all_quantized = true;
    for (size_t part = 0; part < parts.size(); ++part) {
      if (is_loaded_quantized(slot, slot.parts[part]))
        parts[part] = read_(slot_idx, part);
      else
        all_quantized = false;
    }
    if (all_quantized && can_join(parts)) return {join(slot, 0, parts, tensors)};
    std::vector<Weight> placed;
    for (size_t part = 0; part < parts.size(); ++part)
      placed.push_back(is_loaded_quantized(slot, slot.parts[part])
                           ? join(slot, part, std::span(parts).subspan(part, 1), tensors)
                           : load_plain(slot_idx, part, tensors));
    return placed;
  }

 private:
  // Greatest common divisor of the rows of all parts except the last; 0 for a single part.
  static int64_t common_rows(const WeightSlot& slot) {
    int64_t rows = 0;
    for (size_t part = 0; part + 1 < slot.parts.size(); ++part) rows = std::gcd(rows, slot.parts[part].rows);
    return rows;
  }
  JoinedWeight::Copy copy() const {
    return [this](const TensorView& from, const TensorView& to) {
      cuda::copy(from, to, stream_);
      cuda::synchronize(stream_);  // the caller frees `from`
    };
  }
  static Weight finish(const JoinedWeight& joined, std::vector<Tensor>& tensors) {
    std::ranges::copy(joined.tensors(), std::back_inserter(tensors));
    return joined.weight();
  }
  // Frees each part's host memory before it reads the next part.
  Weight join_as_read(size_t slot_idx, std::vector<Tensor>& tensors) const {
    const WeightSlot& slot = slots_[slot_idx];
    std::optional<JoinedWeight> joined;
    for (size_t part = 0; part < slot.parts.size(); ++part) {
      const std::string& name = slot.parts[part].name;
      if (!is_loaded_quantized(slot, slot.parts[part]))
        fail(ErrorCode::kUnsupported, name,
             ": not quantized, unlike other experts: a GPU requires one format for all experts");
      const LoadedPart read = read_(slot_idx, part);
      if (!joined)
        joined.emplace(read.weight, slot.rows(), common_rows(slot), arena_, copy(), slot.num_experts);
      joined->add(read.weight, name);
    }
    return finish(*joined, tensors);
  }
  Weight join(const WeightSlot& slot, size_t first_part, std::span<const LoadedPart> parts,
              std::vector<Tensor>& tensors) const {
    int64_t rows = 0;
    for (const LoadedPart& part : parts) rows += part.weight.out_features();
    JoinedWeight joined(parts.front().weight, rows, common_rows(slot), arena_, copy());
    for (size_t i = 0; i < parts.size(); ++i) joined.add(parts[i].weight, slot.parts[first_part + i].name);
    return finish(joined, tensors);
  }
  Weight load_plain(size_t slot_idx, size_t part, std::vector<Tensor>& tensors) const {
    const WeightSlot& slot = slots_[slot_idx];
    const DType dtype = slot.loaded_dtype(dtype_);
    tensors.push_back(arena_.allocate({slot.part_elements(part)}, dtype));
    write_(slot_idx, part, tensors.back());
    return TensorView::contiguous(tensors.back().view().data, dtype, slot.part_shape(part), stream_.device);
  }

  std::span<const WeightSlot> slots_;
  DType dtype_;
  Arena& arena_;
  const WritePart& write_;
  const ReadQuantized& read_;
  Stream& stream_;
};

// Loads every slot into one arena. On a GPU, the parts of a slot are contiguous, and one tensor if they can
// be joined. In host memory, parts stay separate as in files, and quantized parts have their own memory.
LoadedWeights load_into_memory(std::span<const WeightSlot> slots, const Quantization& quantization,
                               DType dtype, Stream& stream, std::string_view owner,
                               const LoadProgress& progress, const WritePart& write,
                               const ReadQuantized& read) {
  const Device device = stream.device;
  const bool joins = device.type == DeviceType::kCuda;
  LoadedWeights weights;
  const size_t total_bytes = joins ? device_bytes(slots, quantization, dtype) : num_bytes(slots, dtype);
  Arena arena(total_bytes, owner, device);
  const QuantizedSlots quantized(slots, dtype, arena, write, read, stream);
  size_t done_bytes = 0;
  const auto report = [&](size_t bytes) {
    done_bytes += bytes;
    if (progress) progress(done_bytes, total_bytes);
  };
  bool is_separate = false;  // whether the previous slot has separate parts: the slot of their biases follows
  for (size_t i = 0; i < slots.size(); ++i) {
    const WeightSlot& slot = slots[i];
    const DType loaded_dtype = slot.loaded_dtype(dtype);
    std::vector<Weight> placed;
    Tensor flat;
    int64_t first = 0;
    if (joins && quantized.applies_to(slot)) {
      const size_t used_bytes = arena.used_bytes();
      placed = quantized.place(i, weights.tensors);
      is_separate = placed.size() > 1;
      for (const Weight& weight : placed) weights.count(slot, weight.num_bytes());
      report(arena.used_bytes() - used_bytes);
      place(slot, std::move(placed), weights.tensors);
      continue;
    }
    if (joins) flat = arena.allocate({slot.num_elements()}, loaded_dtype);
    for (size_t part = 0; part < slot.parts.size(); ++part) {
      if (!joins && slot.parts[part].storage != WeightStorage::kPlain) {
        LoadedPart result = read(i, part);
        placed.push_back(result.weight);
        std::ranges::move(result.tensors, std::back_inserter(weights.tensors));
        weights.count(slot, result.weight.num_bytes());
        continue;
      }
      const int64_t count = slot.part_elements(part);
      if (!joins) flat = arena.allocate({count}, loaded_dtype);
      const TensorView elements = flat.view().slice(0, first, first + count);
      write(i, part, elements);
      if (joins) first += count;
      if (!joins)
        placed.emplace_back(TensorView::contiguous(elements.data, loaded_dtype, slot.part_shape(part)));
      weights.tensors.push_back(flat);
      weights.count(slot, elements.num_bytes());
      if (joins && is_separate && slot.use == WeightUse::kBias)
        placed.emplace_back(
            TensorView::contiguous(elements.data, loaded_dtype, slot.part_shape(part), device));
      report(Arena::padded_bytes(elements.num_bytes()));
    }
    if (joins && placed.empty())
      placed.emplace_back(TensorView::contiguous(flat.view().data, loaded_dtype, slot.shape(), device));
    is_separate = false;
    place(slot, std::move(placed), weights.tensors);
  }
  // For quantized weights, total_bytes is an upper bound.
  if (done_bytes < total_bytes) report(total_bytes - done_bytes);
  return weights;
}

}  // namespace

size_t device_bytes(std::span<const WeightSlot> slots, const Quantization& quantization, DType dtype) {
  size_t bytes = 0;
  for (const WeightSlot& slot : slots)
    for (size_t part = 0; part < slot.parts.size(); ++part)
      bytes += is_loaded_quantized(slot, slot.parts[part])
                   ? device_bytes(slot, slot.parts[part], quantization)
                   : Arena::padded_bytes(static_cast<size_t>(slot.part_elements(part)) *
                                         size_of(slot.loaded_dtype(dtype)));
  return bytes;
}

LoadedWeights upload_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                             const CheckpointTensors& files, DType dtype, Device device,
                             const LoadProgress& progress) {
  check_weights(slots, quantization, files);
  cuda::OwnedStream owned_stream(device);
  Stream& stream = owned_stream.get();
  const auto read = [&](size_t slot_idx, size_t part_idx) {
    const WeightSlot& slot = slots[slot_idx];
    const WeightPart& part = slot.parts[part_idx];
    fetch_part(slot, part, quantization, files, [](size_t) {});
    return read_part(slot, part, quantization, files);
  };
  StagedUpload upload(stream);
  LoadedWeights weights = load_into_memory(
      slots, quantization, dtype, stream, "weights", progress,
      [&](size_t slot_idx, size_t part, const TensorView& to) {
        const Tensor elements = read(slot_idx, part).tensors.front();
        const Tensor host = converted(elements, slots[slot_idx].loaded_dtype(dtype));
        upload.copy(host.view().reshape({to.num_elements()}), to);
      },
      read);
  cuda::synchronize(stream);
  return weights;
}

std::vector<kernels::RandomNormal> dummy_numbers(std::span<const WeightSlot> slots) {
  std::vector<kernels::RandomNormal> numbers;
  uint64_t first = 0;
  for (const WeightSlot& slot : slots) {
    numbers.push_back(
        {.first = first, .mean = slot.use == WeightUse::kNorm ? 1.0f : 0.0f, .deviation = kDummyDeviation});
    // Element indices continue across tensors, so that no two tensors have the same numbers.
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
  return load_into_memory(
      slots, quantization, dtype, stream, owner, progress,
      [&](size_t slot_idx, size_t, const TensorView& to) {
        kernels::fill_random(to, numbers[slot_idx], stream);
        numbers[slot_idx].first += static_cast<uint64_t>(to.num_elements());
        if (owned_stream) cuda::synchronize(stream);
      },
      [&](size_t slot_idx, size_t part) {
        return make_dummy_tensor(slots[slot_idx], slots[slot_idx].parts[part], quantization);
      });
}

}  // namespace attend
