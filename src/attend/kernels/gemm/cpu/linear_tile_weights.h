// Weights for the tiles of linear_amx.cc: split into bf16 parts and copied to a buffer.
//
// The stride between output features of a weight is often a power of two, so that tiles used in place would
// evict one another from the caches.
#pragma once

#include "attend/kernels/common/cpu/amx_parts.h"
#include "attend/kernels/gemm/cpu/linear_tiles.h"

namespace attend::kernels::cpu {
namespace {

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Tiles of kTileOuts output features by kTileSteps input features: [tiles of output features][num_steps tiles
// of input features][kNumBf16Parts][kTileBytes]. Elements past the matrix's last output feature are
// undefined.
template <class T>
struct WeightTiles {
  static constexpr int64_t kStepBytes = kNumBf16Parts<T> * kTileBytes;

  char* data;
  int64_t num_steps;

  char* tile(int64_t out_tile, int64_t step) const {
    return data + (out_tile * num_steps + step) * kStepBytes;
  }
  // Address of the first part of an output feature.
  char* row(int64_t out, int64_t step) const { return tile(out / kTileOuts, step) + out % kTileOuts * 64; }
};

// Reads and splits the weights of a part.
template <class T>
class WeightReader {
 public:
  explicit WeightReader(const LinearPart& part)
      : weight_(static_cast<const T*>(part.weight)),
        num_outs_(part.num_outs),
        in_features_(part.in_features) {}

  // Reads the tiles' num_steps steps from `feature` for output feature out + idx, if it exists.
  void read_run(int64_t out, int64_t idx, int64_t feature, const WeightTiles<T>& tiles) const {
    if (out + idx >= num_outs_) return;
    const T* const weights = weight_ + (out + idx) * in_features_;
    for (int64_t step = 0; step < tiles.num_steps && feature < in_features_; ++step, feature += kTileSteps)
      read(weights + feature, in_features_ - feature, tiles.row(idx, step));
  }

  // Reads a single step of num_outs output features.
  void read_step(int64_t out, int64_t num_outs, int64_t feature, const WeightTiles<T>& tiles) const {
    const int64_t count = in_features_ - feature, end = least(num_outs, num_outs_ - out);
    const T* weights = weight_ + out * in_features_ + feature;
    for (int64_t idx = 0; idx < end; ++idx, weights += in_features_) read(weights, count, tiles.row(idx, 0));
  }

  // Prefetches the weights of a read_step() call. Always inlined, because gcc treats a function that only
  // prefetches as one without effects.
  [[gnu::always_inline]] void fetch_step(int64_t out, int64_t num_outs, int64_t feature) const {
    const int64_t end = least(num_outs, num_outs_ - out);
    const T* weights = weight_ + out * in_features_ + feature;
    for (int64_t idx = 0; idx < end; ++idx, weights += in_features_)
      for (int64_t i = 0; i < kTileSteps; i += 64 / static_cast<int64_t>(sizeof(T)))
        _mm_prefetch(reinterpret_cast<const char*>(weights + i), _MM_HINT_T1);
  }

 private:
  void read(const T* weights, int64_t count, char* to) const {
    Pairs parts[kNumBf16Parts<T>];
    if (count >= kTileSteps)
      parts_.read(weights, parts);
    else
      parts_.read_first(weights, static_cast<int>(count), parts);
    for (int p = 0; p < kNumBf16Parts<T>; ++p) _mm512_store_si512(to + p * kTileBytes, parts[p]);
  }

  const T* weight_;
  int64_t num_outs_, in_features_;
  Bf16PartsReader<T> parts_;
};

}  // namespace
}  // namespace attend::kernels::cpu
