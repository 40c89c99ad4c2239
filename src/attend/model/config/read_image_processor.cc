#include "attend/model/config/read_image_processor.h"

#include <cmath>

#include "attend/base/error.h"
#include "attend/checkpoint/json.h"

namespace attend {
namespace {

constexpr int kMaxPixels = 1 << 26, kMaxEdge = 1 << 13;
constexpr int kMaxTokens = 1120;  // the largest number of transformers

std::optional<JsonNode> find_processor(const Checkpoint& checkpoint) {
  if (const auto processor = checkpoint.find(CheckpointDocument::kProcessor))
    if (const auto image = processor->find("image_processor")) return image;
  return checkpoint.find(CheckpointDocument::kPreprocessor);
}

void read_channels(const JsonNode& json, const char* key, std::array<float, 3>& values) {
  const auto array = json.find(key);
  if (!array) return;
  if (!array->value().is_array() || array->array_size() != values.size())
    array->reject("an array of 3 numbers, one per channel");
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(array->at(i).positive());
}

void expect_size(const JsonNode& json, const char* key, int expected) {
  const int size = json.find_integer(key, 1, 1 << 16).value_or(expected);
  if (size != expected) json.reject(key, std::to_string(expected) + ", as in vision_config of config.json");
}

// Reads a number, or an object with an equal height and width.
void expect_square(const JsonNode& json, const char* key, int expected) {
  const auto node = json.find(key);
  if (!node || !node->value().is_object()) return expect_size(json, key, expected);
  expect_size(*node, "height", expected);
  expect_size(*node, "width", expected);
}

void read_pixels(const JsonNode& json, const char* key, int64_t& pixels) {
  if (const auto number = json.find_integer(key, 1, kMaxPixels)) pixels = *number;
}

void read_pixel_bounds(const JsonNode& json, ImageProcessorSpec& spec) {
  if (const auto size = json.find("size")) {
    read_pixels(*size, "shortest_edge", spec.min_pixels);
    read_pixels(*size, "longest_edge", spec.max_pixels);
  }
  read_pixels(json, "min_pixels", spec.min_pixels);
  read_pixels(json, "max_pixels", spec.max_pixels);
  if (spec.min_pixels > spec.max_pixels)
    fail(ErrorCode::kCorruptFile, json.where(), ": at least ", spec.min_pixels, " and at most ",
         spec.max_pixels, " pixels: expected a range");
}

void read_size(const JsonNode& json, ImageProcessorSpec& spec) {
  switch (spec.sizing) {
    case ImageSizing::kPixelBounds:
      return read_pixel_bounds(json, spec);
    case ImageSizing::kSquare:
      return expect_square(json, "size", spec.edge);
    case ImageSizing::kLongestEdge:
      if (const auto size = json.find("size"))
        spec.edge = size->find_integer("longest_edge", 1, kMaxEdge).value_or(spec.edge);
      return;
    case ImageSizing::kTokenBudget:
      spec.max_tokens = json.find_integer("max_soft_tokens", 1, kMaxTokens).value_or(spec.max_tokens);
      return expect_size(json, "pooling_kernel_size", spec.merge_size);
  }
}

}  // namespace

void read_image_processor(const Checkpoint& checkpoint, ImageProcessorSpec& spec) {
  const auto json = find_processor(checkpoint);
  if (!json) return;
  expect_square(*json, "patch_size", spec.patch_size);
  expect_size(*json, "merge_size", spec.merge_size);
  if (spec.num_frames > 0) expect_size(*json, "temporal_patch_size", spec.num_frames);
  for (const char* key : {"do_resize", "do_rescale"})
    if (!json->boolean_or(key, true)) json->at(key).unsupported("false: attend supports true");
  if (json->boolean_or("do_normalize", !spec.channels_last) == spec.channels_last)
    json->at("do_normalize")
        .unsupported(spec.channels_last ? "true: attend supports false" : "false: attend supports true");
  if (json->boolean_or("do_pan_and_scan", false))
    json->at("do_pan_and_scan").unsupported("true: attend encodes an image as a whole");
  // Pillow's numbers of filters.
  const bool bicubic = spec.filter == ResizeFilter::kBicubic;
  const int filter = bicubic ? 3 : 2;
  if (json->find_integer("resample", 0, 5).value_or(filter) != filter)
    json->at("resample").unsupported(bicubic ? "attend supports 3, bicubic" : "attend supports 2, bilinear");
  if (std::abs(json->find_positive("rescale_factor").value_or(1.0 / 255.0) * 255.0 - 1.0) > 1e-6)
    json->at("rescale_factor").unsupported("attend supports 1 / 255");
  read_channels(*json, "image_mean", spec.mean);
  read_channels(*json, "image_std", spec.std);
  read_size(*json, spec);
}

}  // namespace attend
