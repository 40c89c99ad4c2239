#include "attend/model/device_weights.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/model/fill_weights.h"
#include "attend/tensor/arena.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

constexpr int64_t kConvertedRunElements = 1 << 16;

int64_t num_elements(const WeightSlot& slot) {
  return TensorView::contiguous(nullptr, DType::kF32, slot.shape).num_elements();
}

size_t padded_bytes(const WeightSlot& slot, DType dtype) {
  return Arena::padded_bytes(static_cast<size_t>(num_elements(slot)) * size_of(dtype));
}

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

// Writes the elements of slots[slot_idx] to `to`, which is contiguous on the device, in the stream's order.
using WriteSlot = std::function<void(size_t slot_idx, const TensorView& to, Stream& stream)>;

// Lays the slots' tensors out on the device, one after another.
class Placer {
 public:
  Placer(std::span<const WeightSlot> slots, DType dtype, Device device, const LoadProgress& progress,
         const WriteSlot& write)
      : slots_(slots),
        dtype_(dtype),
        total_bytes_(device_weight_bytes(slots, dtype)),
        stream_(device),
        arena_(total_bytes_, "weights", device),
        progress_(progress),
        write_(write) {
    for (size_t i = 0; i < slots.size(); ++i) slot_of_[slots[i].tensor] = i;
  }

  // Those that were not joined.
  void place_rest() {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!slot_of_.contains(slots_[i].tensor)) continue;
      const Tensor flat = arena_.allocate({num_elements(slots_[i])}, dtype_);
      write(i, flat);
      *slots_[i].tensor =
          Tensor(TensorView::contiguous(flat.view().data, dtype_, slots_[i].shape, flat.view().device),
                 flat.storage());
    }
  }

  // The rows of `parts`, one after another, as one tensor; the parts are given up. Parts without a slot are
  // what the model does not have.
  void join(std::initializer_list<Tensor*> parts, Tensor& joined) {
    if (!slot_of_.contains(*parts.begin())) return;
    std::vector<int64_t> shape = slot(*parts.begin()).shape;
    shape[0] = 0;
    for (const Tensor* part : parts) shape[0] += slot(part).shape[0];
    const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const Tensor flat = arena_.allocate({count}, dtype_);
    joined =
        Tensor(TensorView::contiguous(flat.view().data, dtype_, shape, flat.view().device), flat.storage());
    int64_t first = 0;
    for (Tensor* part : parts) {
      const int64_t end = first + num_elements(slot(part));
      write(slot_of_.at(part), flat.view().slice(0, first, end));
      *part = Tensor();
      first = end;
    }
  }

 private:
  const WeightSlot& slot(const Tensor* tensor) const { return slots_[slot_of_.at(tensor)]; }

  void write(size_t slot_idx, const TensorView& to) {
    write_(slot_idx, to, stream_.get());
    cuda::synchronize(stream_.get());
    slot_of_.erase(slots_[slot_idx].tensor);
    done_bytes_ += to.num_bytes();
    if (progress_) progress_(done_bytes_, total_bytes_);
  }

  std::span<const WeightSlot> slots_;
  DType dtype_;
  size_t done_bytes_ = 0, total_bytes_;
  cuda::OwnedStream stream_;
  Arena arena_;
  const LoadProgress& progress_;
  const WriteSlot& write_;
  std::unordered_map<const Tensor*, size_t> slot_of_;  // of the tensors that are not placed yet
};

void place_on_device(std::span<const WeightSlot> slots, DType dtype, Device device,
                     const LoadProgress& progress, const WriteSlot& write, DecoderWeights& weights) {
  Placer placer(slots, dtype, device, progress, write);
  for (DecoderLayerWeights& layer : weights.layers) {
    placer.join({&layer.q.weight, &layer.k.weight, &layer.v.weight}, layer.qkv.weight);
    placer.join({&layer.q.bias, &layer.k.bias, &layer.v.bias}, layer.qkv.bias);
    placer.join({&layer.gate.weight, &layer.up.weight}, layer.gate_up.weight);
    placer.join({&layer.gate.bias, &layer.up.bias}, layer.gate_up.bias);
  }
  placer.place_rest();
}

}  // namespace

size_t device_weight_bytes(std::span<const WeightSlot> slots, DType dtype) {
  size_t bytes = 0;
  for (const WeightSlot& slot : slots) bytes += padded_bytes(slot, dtype);
  return bytes;
}

void move_to_device(std::span<const WeightSlot> slots, DType dtype, Device device,
                    const LoadProgress& progress, DecoderWeights& weights) {
  const WriteSlot upload = [&](size_t slot_idx, const TensorView& to, Stream& stream) {
    const Tensor host = converted(*slots[slot_idx].tensor, dtype);
    cuda::copy(host.view().reshape({to.num_elements()}), to, stream);
    cuda::synchronize(stream);  // before the converted copy goes
  };
  place_on_device(slots, dtype, device, progress, upload, weights);
}

void make_dummy_weights_on_device(std::span<const WeightSlot> slots, DType dtype, Device device,
                                  const LoadProgress& progress, DecoderWeights& weights) {
  const std::vector<kernels::RandomNormal> numbers = dummy_numbers(slots);
  const WriteSlot fill = [&](size_t slot_idx, const TensorView& to, Stream& stream) {
    kernels::fill_random(to, numbers[slot_idx], stream);
  };
  place_on_device(slots, dtype, device, progress, fill, weights);
}

}  // namespace attend
