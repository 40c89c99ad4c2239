// Random numbers that are the same on every machine and with every standard library, so that a case can be
// rebuilt from its seed.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace attend::conformance {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
class Random {
 public:
  // Streams of one seed are independent: drawing from one does not change another.
  explicit Random(uint64_t seed, uint64_t stream = 0) : state_(seed + 0x632be59bd9b4e019ull * (stream + 1)) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

  // Uniform in [0, count).
  int below(int count) { return static_cast<int>(next() % static_cast<uint64_t>(count)); }

  // Approximately normal, mean 0, variance 1, within +-3.5: the sum of four uniform numbers.
  float normal() {
    const uint64_t bits = next();
    double sum = 0.0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>((bits >> (16 * i)) & 0xffff) / 65535.0 - 0.5;
    return static_cast<float>(sum * 1.7320508075688772);
  }

  template <class T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[static_cast<size_t>(below(static_cast<int>(i)))]);
  }

 private:
  uint64_t state_;
};

}  // namespace attend::conformance
