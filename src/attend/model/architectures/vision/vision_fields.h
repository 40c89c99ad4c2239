// Fields of vision_config that towers have in common. Internal to architectures/vision/.
#pragma once

#include <array>
#include <string>

#include "attend/model/architectures/architecture.h"

namespace attend {

inline constexpr int kMaxTowerSize = 1 << 20;

inline constexpr std::array<float, 3> kClipMean{0.48145466f, 0.4578275f, 0.40821073f};
inline constexpr std::array<float, 3> kClipStd{0.26862954f, 0.26130258f, 0.27577711f};

inline int read_tower_size(const JsonNode& json, const char* key, int missing) {
  return json.find_integer(key, 1, kMaxTowerSize).value_or(missing);
}

// Rejects images without three channels.
inline void expect_channels(const JsonNode& json, const char* key) {
  if (json.find_integer(key, 1, kMaxTowerSize).value_or(Image::kChannels) != Image::kChannels)
    json.reject(key, "3");
}

// Rejects a hidden_size that heads do not divide.
inline void check_heads(const JsonNode& json, const VisionSpec& spec) {
  if (spec.hidden_size % spec.num_heads != 0)
    json.reject("hidden_size", "a multiple of the number of heads, " + std::to_string(spec.num_heads));
}

// Returns the patches of a side of an image of image_size. Rejects a size that patches do not divide.
inline int patches_per_side(const JsonNode& json, int image_size, int patch_size) {
  if (image_size % patch_size != 0)
    json.reject("image_size", "a multiple of patch_size " + std::to_string(patch_size));
  return image_size / patch_size;
}

}  // namespace attend
