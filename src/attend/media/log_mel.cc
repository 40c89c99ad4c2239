#include "attend/media/log_mel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/base/parallel.h"

namespace attend {
namespace {

// std::complex multiplies with checks for NaN.
struct Complex {
  double re = 0.0, im = 0.0;
};

Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
Complex operator*(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

int smallest_factor(int n) {
  for (int factor = 2; factor * factor <= n; ++factor)
    if (n % factor == 0) return factor;
  return n;
}

// Discrete Fourier transform of any size, by decimation in time over the prime factors of the size.
class Dft {
 public:
  explicit Dft(int size) : size_(size) {
    for (int rest = size; rest > 1; rest /= smallest_factor(rest))
      if (smallest_factor(rest) > kMaxFactor)
        fail(ErrorCode::kUnsupported, "frames of ", size, " samples: attend supports prime factors up to ",
             kMaxFactor);
    for (int i = 0; i < size; ++i) {
      const double angle = -2.0 * std::numbers::pi * i / size;
      roots_.push_back({std::cos(angle), std::sin(angle)});
    }
  }

  // x, out: [size].
  void transform(const double* x, Complex* out) const { transform(x, 1, out, size_); }

 private:
  static constexpr int kMaxFactor = 61;

  // Transforms the n elements x[0], x[stride], ...
  void transform(const double* x, int stride, Complex* out, int n) const {
    if (n == 1) {
      *out = {*x, 0.0};
      return;
    }
    const int factor = smallest_factor(n), part = n / factor;
    for (int r = 0; r < factor; ++r) transform(x + r * stride, stride * factor, out + r * part, part);
    std::array<Complex, kMaxFactor> terms;
    for (int k = 0; k < part; ++k) {
      for (int r = 0; r < factor; ++r)
        terms[static_cast<size_t>(r)] = out[r * part + k] * root(int64_t{r} * k, n);
      for (int q = 0; q < factor; ++q) {
        Complex sum = terms[0];
        for (int r = 1; r < factor; ++r)
          sum = sum + terms[static_cast<size_t>(r)] * root(int64_t{r} * q, factor);
        out[q * part + k] = sum;
      }
    }
  }

  // exp(-2 pi i index / n) for a divisor n of the size.
  Complex root(int64_t index, int n) const { return roots_[static_cast<size_t>(index % n * (size_ / n))]; }

  int size_;
  std::vector<Complex> roots_;
};

// Slaney's mel scale (Auditory Toolbox, 1998): linear below 1000 Hz, logarithmic above.
constexpr double kMaxHz = 8000.0, kBreakHz = 1000.0, kHzPerMel = 200.0 / 3.0;
const double kLogStep = std::log(6.4) / 27.0;

double hz_to_mel(double hz) {
  return hz < kBreakHz ? hz / kHzPerMel : kBreakHz / kHzPerMel + std::log(hz / kBreakHz) / kLogStep;
}

double mel_to_hz(double mel) {
  const double break_mel = kBreakHz / kHzPerMel;
  return mel < break_mel ? mel * kHzPerMel : kBreakHz * std::exp(kLogStep * (mel - break_mel));
}

// Triangle over frequency bins.
struct MelFilter {
  int first_bin = 0;
  std::vector<double> weights = {};
};

std::vector<MelFilter> make_filters(const LogMelConfig& config) {
  const int num_bins = config.fft_size / 2 + 1;
  std::vector<double> edges;
  const double last = hz_to_mel(kMaxHz);
  for (int i = 0; i < config.num_mels + 2; ++i) edges.push_back(mel_to_hz(last * i / (config.num_mels + 1)));
  std::vector<MelFilter> filters(static_cast<size_t>(config.num_mels));
  for (size_t mel = 0; mel < filters.size(); ++mel) {
    const double low = edges[mel], center = edges[mel + 1], high = edges[mel + 2];
    MelFilter& filter = filters[mel];
    for (int bin = 0; bin < num_bins; ++bin) {
      const double hz = 0.5 * config.sample_rate * bin / (num_bins - 1);
      const double weight = std::min((hz - low) / (center - low), (high - hz) / (high - center));
      if (weight <= 0.0) continue;
      if (filter.weights.empty()) filter.first_bin = bin;
      filter.weights.push_back(weight * 2.0 / (high - low));
    }
  }
  return filters;
}

}  // namespace

Spectrogram log_mel(std::span<const float> samples, int64_t min_samples, const LogMelConfig& config) {
  const int64_t num_samples = std::max(std::ssize(samples), min_samples), half = config.fft_size / 2;
  require(num_samples > half, "audio of ", num_samples, " samples: a spectrogram needs more than ", half);
  std::vector<double> window;
  for (int i = 0; i < config.fft_size; ++i)
    window.push_back(0.5 - 0.5 * std::cos(2.0 * std::numbers::pi * i / config.fft_size));
  const std::vector<MelFilter> filters = make_filters(config);
  const Dft dft(config.fft_size);
  const auto sample = [&](int64_t i) {
    if (i < 0) i = -i;
    if (i >= num_samples) i = 2 * (num_samples - 1) - i;
    return i < std::ssize(samples) ? static_cast<double>(samples[static_cast<size_t>(i)]) : 0.0;
  };

  Spectrogram out{.num_mels = config.num_mels};
  const int64_t num_frames = num_samples / config.hop;
  out.values.resize(static_cast<size_t>(num_frames * config.num_mels));
  constexpr int64_t kFramesPerTask = 64;
  parallel_for(ceil_div(num_frames, kFramesPerTask), [&](int64_t task, int) {
    std::vector<double> frame(static_cast<size_t>(config.fft_size)), power(static_cast<size_t>(half) + 1);
    std::vector<Complex> bins(frame.size());
    const int64_t end = std::min(num_frames, (task + 1) * kFramesPerTask);
    for (int64_t i = task * kFramesPerTask; i < end; ++i) {
      for (size_t j = 0; j < frame.size(); ++j)
        frame[j] = window[j] * sample(i * config.hop - half + static_cast<int64_t>(j));
      dft.transform(frame.data(), bins.data());
      for (size_t bin = 0; bin < power.size(); ++bin)
        power[bin] = bins[bin].re * bins[bin].re + bins[bin].im * bins[bin].im;
      float* const to = out.values.data() + i * config.num_mels;
      for (size_t mel = 0; mel < filters.size(); ++mel) {
        double sum = 0.0;
        for (size_t j = 0; j < filters[mel].weights.size(); ++j)
          sum += filters[mel].weights[j] * power[static_cast<size_t>(filters[mel].first_bin) + j];
        to[mel] = static_cast<float>(std::log10(std::max(sum, 1e-10)));
      }
    }
  });
  float highest = -std::numeric_limits<float>::infinity();
  for (const float value : out.values) highest = std::max(highest, value);
  for (float& value : out.values) value = (std::max(value, highest - 8.0f) + 4.0f) / 4.0f;
  return out;
}

}  // namespace attend
