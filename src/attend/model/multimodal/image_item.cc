#include "attend/model/multimodal/image_item.h"

#include <algorithm>
#include <cmath>

#include "attend/base/error.h"
#include "attend/base/math.h"

namespace attend {

namespace {

ImageSize fit_pixel_bounds(int width, int height, const ImageProcessorSpec& spec) {
  constexpr int kMaxRatio = 200;
  require(std::max(width, height) <= int64_t{kMaxRatio} * std::min(width, height), "image of ", width, " x ",
          height, ": the ratio of its sides is above ", kMaxRatio);
  const double factor = spec.factor();
  // Halves are rounded to even, as Python's round() does.
  double w = std::nearbyint(width / factor) * factor, h = std::nearbyint(height / factor) * factor;
  const double num_pixels = 1.0 * width * height;
  if (w * h > static_cast<double>(spec.max_pixels)) {
    const double beta = std::sqrt(num_pixels / static_cast<double>(spec.max_pixels));
    w = std::max(factor, std::floor(width / beta / factor) * factor);
    h = std::max(factor, std::floor(height / beta / factor) * factor);
  } else if (w * h < static_cast<double>(spec.min_pixels)) {
    const double beta = std::sqrt(static_cast<double>(spec.min_pixels) / num_pixels);
    w = std::ceil(width * beta / factor) * factor;
    h = std::ceil(height * beta / factor) * factor;
  }
  // A side may still be rounded to 0 if the product is within the bounds; transformers fails then.
  require(w > 0.0 && h > 0.0, "image of ", width, " x ", height, ": a side is shorter than half of ",
          spec.factor(), " pixels");
  return {static_cast<int>(w), static_cast<int>(h)};
}

ImageSize fit_longest_edge(int width, int height, const ImageProcessorSpec& spec) {
  double w = width, h = height;
  const double ratio = std::max(h / spec.edge, w / spec.edge);
  if (ratio > 1.0) {
    w = std::floor(w / ratio);
    h = std::floor(h / ratio);
  }
  require(w > 0.0 && h > 0.0, "image of ", width, " x ", height,
          ": a side is shorter than a pixel if the other has ", spec.edge);
  const auto up = [&](double side) { return round_up(static_cast<int>(side), spec.factor()); };
  return {up(w), up(h)};
}

}  // namespace

ImageSize choose_size(int width, int height, const ImageProcessorSpec& spec) {
  switch (spec.sizing) {
    case ImageSizing::kPixelBounds:
      return fit_pixel_bounds(width, height, spec);
    case ImageSizing::kSquare:
      return {spec.edge, spec.edge};
    case ImageSizing::kLongestEdge:
      return fit_longest_edge(width, height, spec);
  }
  fail(ErrorCode::kInternal, "image sizing ", static_cast<int>(spec.sizing));
}

std::shared_ptr<const ImageItem> prepare_image(const Image& image, const ImageProcessorSpec& spec) {
  const ImageSize size = choose_size(image.width, image.height, spec);
  auto item = std::make_shared<ImageItem>();
  item->pixels = resize(image, size.width, size.height, spec.filter);
  item->rows = size.height / spec.factor();
  item->columns = size.width / spec.factor();
  item->hash = content_hash(item->pixels);
  return item;
}

}  // namespace attend
