#include "attend/engine/prompt_images.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "attend/base/error.h"
#include "attend/model/multimodal/prompt_positions.h"

namespace attend {
namespace {

std::shared_ptr<const ImageItem> read_image(const std::string& file, size_t number,
                                            const ImageProcessorSpec& spec) {
  try {
    return prepare_image(decode_image(std::as_bytes(std::span(file))), spec);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kOutOfMemory) throw;
    fail(ErrorCode::kInvalidArgument, "image ", number, ": ", error.what());
  }
}

// Key of one token of an image. The hash has more bits than keys, so that tokens have different parts of it.
int32_t image_key(const ContentHash& hash, uint64_t token) {
  uint64_t words[4];
  std::memcpy(words, hash.data(), sizeof(words));
  uint64_t x = words[token % 4] + 0x9e3779b97f4a7c15ull * (token + 1);
  // splitmix64's finalizer.
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  constexpr int kKeyBits = 30;
  return std::numeric_limits<int32_t>::min() + static_cast<int32_t>((x ^ (x >> 31)) >> (64 - kKeyBits));
}

}  // namespace

std::shared_ptr<const PromptImages> place_images(const ModelSpec& model, std::span<const std::string> files,
                                                 std::vector<int32_t>& prompt) {
  ensure(model.vision && model.image_token_id, "images for ", model.architecture);
  const auto num_placeholders = std::ranges::count(prompt, *model.image_token_id);
  require(num_placeholders == std::ssize(files), "images: ", files.size(), ", but the prompt has ",
          num_placeholders, " placeholders (token ", *model.image_token_id, ")");
  auto images = std::make_shared<PromptImages>();
  std::vector<ImageSpan> spans;
  std::vector<int32_t> expanded;
  for (const int32_t id : prompt) {
    if (id != *model.image_token_id) {
      expanded.push_back(id);
      continue;
    }
    const size_t number = images->images.size();
    const PlacedImage placed{.image = read_image(files[number], number + 1, model.vision->processor),
                             .first_token = static_cast<int>(expanded.size())};
    expanded.resize(expanded.size() + static_cast<size_t>(placed.image->num_tokens()), id);
    spans.push_back({placed.first_token, placed.image->rows, placed.image->columns});
    images->images.push_back(placed);
  }
  prompt = std::move(expanded);
  const bool has_axes =
      std::ranges::any_of(model.ropes, [](const RopeConfig& rope) { return !rope.pair_axes.empty(); });
  if (!has_axes) return images;
  PromptPositions positions = prompt_positions(static_cast<int>(prompt.size()), spans);
  std::ranges::move(positions.axes, images->axes);
  images->position_delta = positions.delta;
  return images;
}

std::vector<int32_t> image_keys(const PromptImages& images, std::span<const int32_t> prompt) {
  std::vector<int32_t> keys(prompt.begin(), prompt.end());
  for (const PlacedImage& placed : images.images)
    for (int token = 0; token < placed.image->num_tokens(); ++token)
      keys[static_cast<size_t>(placed.first_token + token)] =
          image_key(placed.image->hash, static_cast<uint64_t>(token));
  return keys;
}

}  // namespace attend
