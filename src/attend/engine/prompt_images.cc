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
  const ImageMarkers& markers = model.vision->markers;
  auto images = std::make_shared<PromptImages>();
  images->bidirectional = model.has_bidirectional_items();
  images->pad_id = markers.pad_id;
  std::vector<ImageSpan> spans;
  std::vector<int32_t> expanded;
  for (const int32_t id : prompt) {
    if (id != *model.image_token_id) {
      expanded.push_back(id);
      continue;
    }
    const size_t index = images->images.size();
    const auto image = read_image(files[index], index + 1, model.vision->processor);
    images->images.push_back(image);
    if (markers.image_begin_id >= 0) expanded.push_back(markers.image_begin_id);
    spans.push_back({static_cast<int>(expanded.size()), image->rows, image->columns});
    const bool ends_rows = markers.row_end_id >= 0;
    const int num_runs = ends_rows ? image->rows : 1, length = image->num_tokens() / num_runs;
    for (int run = 0; run < num_runs; ++run) {
      images->runs.push_back({.image = index,
                              .first_token = static_cast<int>(expanded.size()),
                              .first_row = run * length,
                              .num_tokens = length});
      expanded.resize(expanded.size() + static_cast<size_t>(length), id);
      if (run + 1 < num_runs) expanded.push_back(markers.row_end_id);
    }
    if (markers.image_end_id >= 0) expanded.push_back(markers.image_end_id);
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

void find_markers(const Tokenizer& tokenizer, ImageMarkers& markers) {
  if (markers.row_end.empty()) return;
  markers.row_end_id = tokenizer.token_id(markers.row_end).value_or(markers.row_end_id);
  markers.image_end_id = tokenizer.token_id(markers.image_end).value_or(markers.image_end_id);
}

void write_placeholders(const ModelSpec& model, std::string& text) {
  if (!model.vision || model.vision->markers.template_text.empty()) return;
  const ImageMarkers& markers = model.vision->markers;
  for (size_t at = text.find(markers.template_text); at != std::string::npos;
       at = text.find(markers.template_text, at + markers.prompt_text.size()))
    text.replace(at, markers.template_text.size(), markers.prompt_text);
}

void write_placeholders(const ModelSpec& model, std::vector<ChatTemplate::Part>& parts) {
  for (ChatTemplate::Part& part : parts)
    if (!part.from_user) write_placeholders(model, part.text);
}

std::vector<int32_t> image_keys(const PromptImages& images, std::span<const int32_t> prompt) {
  std::vector<int32_t> keys(prompt.begin(), prompt.end());
  for (const ImageRun& run : images.runs)
    for (int token = 0; token < run.num_tokens; ++token)
      keys[static_cast<size_t>(run.first_token + token)] =
          image_key(images.images[run.image]->hash, static_cast<uint64_t>(run.first_row + token));
  return keys;
}

}  // namespace attend
