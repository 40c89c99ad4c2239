#include "attend/model/device_weights.h"

#include <algorithm>
#include <initializer_list>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/tensor/arena.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

constexpr int64_t kRunElements = 1 << 16;

size_t padded_bytes(const WeightSlot& slot, DType dtype) {
  return Arena::padded_bytes(TensorView::contiguous(nullptr, dtype, slot.shape).num_bytes());
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
      parallel_for(ceil_div(count, kRunElements), [&](int64_t run, int) {
        const int64_t end = std::min(count, (run + 1) * kRunElements);
        for (int64_t i = run * kRunElements; i < end; ++i) target[i] = To(static_cast<float>(source[i]));
      });
    });
  });
  return made;
}

class Mover {
 public:
  Mover(size_t num_bytes, DType dtype, Device device, const LoadProgress& progress)
      : dtype_(dtype),
        stream_(device),
        arena_(num_bytes, "weights", device),
        progress_(progress),
        total_bytes_(num_bytes) {}

  void move(Tensor& tensor) {
    if (tensor.view().empty() || tensor.view().device == arena_device()) return;
    const TensorView& shape = tensor.view();
    const Tensor flat = arena_.allocate({shape.num_elements()}, dtype_);
    upload(tensor, flat);
    TensorView view = flat;
    view = TensorView::contiguous(view.data, dtype_, {shape.shape.data(), static_cast<size_t>(shape.rank)},
                                  view.device);
    tensor = Tensor(view, flat.storage());
  }

  // The rows of `parts`, one after another, as one tensor; the parts are given up.
  void join(std::initializer_list<Tensor*> parts, Tensor& joined) {
    const TensorView& first = (*parts.begin())->view();
    if (first.empty()) return;
    const int64_t row_elements = first.num_elements() / first.shape[0];
    int64_t num_rows = 0;
    for (const Tensor* part : parts) num_rows += part->shape(0);
    joined = first.rank == 1 ? arena_.allocate({num_rows}, dtype_)
                             : arena_.allocate({num_rows, row_elements}, dtype_);
    int64_t row = 0;
    for (Tensor* part : parts) {
      const int64_t end = row + part->shape(0);
      upload(*part, joined.view().slice(0, row, end));
      *part = Tensor();
      row = end;
    }
  }

 private:
  Device arena_device() { return stream_.get().device; }

  void upload(const Tensor& from, const TensorView& to) {
    const Tensor host = converted(from, dtype_);
    const auto count = host.view().num_elements();
    cuda::copy(host.view().reshape({count}), to.reshape({count}), stream_.get());
    cuda::synchronize(stream_.get());
    done_bytes_ += to.num_bytes();
    if (progress_) progress_(done_bytes_, total_bytes_);
  }

  DType dtype_;
  cuda::OwnedStream stream_;
  Arena arena_;
  const LoadProgress& progress_;
  size_t done_bytes_ = 0, total_bytes_;
};

}  // namespace

size_t device_weight_bytes(std::span<const WeightSlot> slots, DType dtype) {
  size_t bytes = 0;
  for (const WeightSlot& slot : slots) bytes += padded_bytes(slot, dtype);
  return bytes;
}

void move_to_device(std::span<const WeightSlot> slots, DType dtype, Device device,
                    const LoadProgress& progress, DecoderWeights& weights) {
  Mover mover(device_weight_bytes(slots, dtype), dtype, device, progress);
  for (DecoderLayerWeights& layer : weights.layers) {
    mover.join({&layer.q.weight, &layer.k.weight, &layer.v.weight}, layer.qkv.weight);
    mover.join({&layer.q.bias, &layer.k.bias, &layer.v.bias}, layer.qkv.bias);
    mover.join({&layer.gate.weight, &layer.up.weight}, layer.gate_up.weight);
    mover.join({&layer.gate.bias, &layer.up.bias}, layer.gate_up.bias);
  }
  for (const WeightSlot& slot : slots) mover.move(*slot.tensor);
}

}  // namespace attend
