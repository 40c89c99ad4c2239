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

ImageSize fit_token_budget(int width, int height, const ImageProcessorSpec& spec) {
  const double factor = spec.factor(), budget = spec.max_tokens * factor * factor;
  const double scale = std::sqrt(budget / (1.0 * width * height));
  double w = std::floor(scale * width / factor) * factor, h = std::floor(scale * height / factor) * factor;
  // A short side has one token, and the other one as many as the ratio of the sides.
  const auto long_side = [&](int longer, int shorter) {
    return std::min(std::floor(1.0 * longer / shorter) * factor, spec.max_tokens * factor);
  };
  if (h == 0.0) {
    h = factor;
    w = long_side(width, height);
  } else if (w == 0.0) {
    w = factor;
    h = long_side(height, width);
  }
  return {static_cast<int>(w), static_cast<int>(h)};
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
    case ImageSizing::kTokenBudget:
      return fit_token_budget(width, height, spec);
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
