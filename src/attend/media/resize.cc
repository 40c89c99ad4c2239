#include <algorithm>
#include <cmath>

#include "attend/base/error.h"
#include "attend/media/image.h"

namespace attend {
namespace {

double bilinear(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

// Keys' cubic convolution with a = -0.5.
double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
  return 0.0;
}

// Integer weights of one axis: output i is the sum of weights[i * max_taps + t] * input[first[i] + t],
// shifted by `precision`.
struct AxisWeights {
  int max_taps = 0;
  int precision = 0;
  std::vector<int> first = {}, num_taps = {};
  std::vector<int16_t> weights = {};
};

AxisWeights make_weights(int in, int out, ResizeFilter filter) {
  const bool cubic = filter == ResizeFilter::kBicubic;
  const double scale = static_cast<double>(in) / out, stretch = std::max(scale, 1.0);
  const double support = (cubic ? 2.0 : 1.0) * stretch;
  AxisWeights axis{.max_taps = static_cast<int>(std::ceil(support)) * 2 + 1};
  const auto num_outputs = static_cast<size_t>(out), max_taps = static_cast<size_t>(axis.max_taps);
  axis.first.resize(num_outputs);
  axis.num_taps.resize(num_outputs);
  std::vector<double> weights(num_outputs * max_taps, 0.0);
  double largest = 0.0;
  for (size_t i = 0; i < num_outputs; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(center - support + 0.5));
    const int end = std::min(in, static_cast<int>(center + support + 0.5));
    axis.first[i] = first;
    axis.num_taps[i] = std::clamp(end - first, 0, axis.max_taps);
    double* const row = weights.data() + i * max_taps;
    double sum = 0.0;
    for (int tap = 0; tap < axis.num_taps[i]; ++tap) {
      const double x = (tap + first - center + 0.5) / stretch;
      row[tap] = cubic ? bicubic(x) : bilinear(x);
      sum += row[tap];
    }
    for (int tap = 0; tap < axis.num_taps[i]; ++tap) {
      if (sum != 0.0) row[tap] /= sum;
      largest = std::max(largest, row[tap]);
    }
  }
  // The largest weight needs 15 bits.
  while (axis.precision < 22 &&
         static_cast<int>(0.5 + largest * static_cast<double>(int64_t{1} << (axis.precision + 1))) <
             (1 << 15))
    ++axis.precision;
  axis.weights.reserve(weights.size());
  const auto unit = static_cast<double>(int64_t{1} << axis.precision);
  for (const double weight : weights)
    axis.weights.push_back(static_cast<int16_t>(weight * unit + (weight < 0.0 ? -0.5 : 0.5)));
  return axis;
}

uint8_t to_byte(int sum, int precision) { return static_cast<uint8_t>(std::clamp(sum >> precision, 0, 255)); }

Image resize_x(const Image& image, int width, ResizeFilter filter) {
  const AxisWeights axis = make_weights(image.width, width, filter);
  Image out{.width = width, .height = image.height};
  out.pixels.resize(static_cast<size_t>(out.num_pixels()) * Image::kChannels);
  const int half = 1 << (axis.precision - 1);
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* const from = image.pixels.data() + y * image.width * Image::kChannels;
    uint8_t* to = out.pixels.data() + y * width * Image::kChannels;
    for (size_t x = 0; x < static_cast<size_t>(width); ++x) {
      const int16_t* const weights = axis.weights.data() + x * static_cast<size_t>(axis.max_taps);
      const uint8_t* pixel = from + int64_t{axis.first[x]} * Image::kChannels;
      int sums[Image::kChannels] = {half, half, half};
      for (int tap = 0; tap < axis.num_taps[x]; ++tap)
        for (int& sum : sums) sum += weights[tap] * *pixel++;
      for (const int sum : sums) *to++ = to_byte(sum, axis.precision);
    }
  }
  return out;
}

Image resize_y(const Image& image, int height, ResizeFilter filter) {
  const AxisWeights axis = make_weights(image.height, height, filter);
  Image out{.width = image.width, .height = height};
  const int64_t row_size = int64_t{image.width} * Image::kChannels;
  out.pixels.resize(static_cast<size_t>(row_size * height));
  const int half = 1 << (axis.precision - 1);
  for (int64_t y = 0; y < height; ++y) {
    const auto row = static_cast<size_t>(y);
    const int16_t* const weights = axis.weights.data() + row * static_cast<size_t>(axis.max_taps);
    const uint8_t* const from = image.pixels.data() + axis.first[row] * row_size;
    uint8_t* const to = out.pixels.data() + y * row_size;
    for (int64_t i = 0; i < row_size; ++i) {
      int sum = half;
      for (int tap = 0; tap < axis.num_taps[row]; ++tap) sum += weights[tap] * from[tap * row_size + i];
      to[i] = to_byte(sum, axis.precision);
    }
  }
  return out;
}

}  // namespace

Image resize(const Image& image, int width, int height, ResizeFilter filter) {
  require(image.width > 0 && image.height > 0 && width > 0 && height > 0, "resize of ", image.width, " x ",
          image.height, " to ", width, " x ", height, ": expected sizes of at least 1");
  if (width == image.width && height == image.height) return image;
  if (width == image.width) return resize_y(image, height, filter);
  const Image rows = resize_x(image, width, filter);
  return height == image.height ? rows : resize_y(rows, height, filter);
}

}  // namespace attend
