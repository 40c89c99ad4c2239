#include <algorithm>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/model/fill_weights.h"
#include "attend/tensor/arena.h"

namespace attend {
namespace {

constexpr float kDeviation = 0.02f;
constexpr int64_t kRunElements = 1 << 16;

// A well-mixed hash of a counter (splitmix64's finaliser, https://prng.di.unimi.it/splitmix64.c).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// About N(0, 1): the sum of four uniform 16-bit numbers, centred and scaled by its deviation (Irwin-Hall,
// variance 4/12). No logarithm, so that weights of many gigabytes take seconds.
float about_normal(uint64_t counter) {
  const uint64_t bits = mix(counter);
  const auto sum =
      static_cast<int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
  constexpr float kScale = 1.7320508f / 65536.0f;
  return static_cast<float>(sum - 2 * 65535) * kScale;
}

template <class T>
void fill(T* elements, int64_t begin, int64_t end, uint64_t seed, float mean) {
  for (int64_t i = begin; i < end; ++i)
    elements[i] = static_cast<T>(mean + kDeviation * about_normal(seed + static_cast<uint64_t>(i)));
}

void fill_slot(const WeightSlot& slot, uint64_t seed) {
  const TensorView& view = slot.tensor->view();
  const float mean = slot.is_norm ? 1.0f : 0.0f;
  const int64_t num_elements = view.num_elements();
  visit_float_dtype(view.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* elements = view.as<T>();
    parallel_for(ceil_div(num_elements, kRunElements), [&](int64_t run, int) {
      const int64_t begin = run * kRunElements;
      fill(elements, begin, std::min(begin + kRunElements, num_elements), seed, mean);
    });
  });
}

size_t bytes_of(const WeightSlot& slot, DType dtype) {
  return TensorView::contiguous(nullptr, dtype, slot.shape).num_bytes();
}

}  // namespace

void make_dummy_weights(std::span<const WeightSlot> slots, DType dtype, const LoadProgress& progress) {
  size_t total_bytes = 0, done_bytes = 0;
  for (const WeightSlot& slot : slots) total_bytes += Arena::padded_bytes(bytes_of(slot, dtype));
  Arena arena(total_bytes, "dummy weights");
  for (const WeightSlot& slot : slots) {
    const Tensor flat = arena.allocate({static_cast<int64_t>(bytes_of(slot, dtype) / size_of(dtype))}, dtype);
    *slot.tensor = Tensor(TensorView::contiguous(flat.view().data, dtype, slot.shape), flat.storage());
    // Elements count on across tensors, so that no two tensors are alike.
    fill_slot(slot, done_bytes);
    done_bytes += Arena::padded_bytes(bytes_of(slot, dtype));
    if (progress) progress(done_bytes, total_bytes);
  }
}

}  // namespace attend
