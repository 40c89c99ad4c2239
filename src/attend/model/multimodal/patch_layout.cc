#include "attend/model/multimodal/patch_layout.h"

#include <algorithm>

#include "attend/base/parallel.h"

namespace attend {

PatchLayout make_patch_layout(const ImageItem& image, const VisionSpec& spec) {
  const int merge = spec.processor.merge_size;
  PatchLayout layout{.num_patches = image.num_tokens() * spec.processor.patches_per_token(),
                     .cu_windows = {0}};
  const int side = spec.window_side > 0 ? spec.window_side : std::max(image.rows, image.columns);
  for (int top = 0; top < image.rows; top += side)
    for (int left = 0; left < image.columns; left += side) {
      const int bottom = std::min(image.rows, top + side), right = std::min(image.columns, left + side);
      for (int row = top; row < bottom; ++row)
        for (int column = left; column < right; ++column)
          layout.tokens.push_back(row * image.columns + column);
      layout.cu_windows.push_back(static_cast<int32_t>(layout.tokens.size()) *
                                  spec.processor.patches_per_token());
    }
  for (const int32_t token : layout.tokens)
    for (int row = 0; row < merge; ++row)
      for (int column = 0; column < merge; ++column) {
        layout.patch_rows.push_back(token / image.columns * merge + row);
        layout.patch_columns.push_back(token % image.columns * merge + column);
      }
  return layout;
}

Tensor make_patches(const ImageItem& image, const PatchLayout& layout, int begin, int end,
                    const ImageProcessorSpec& spec) {
  constexpr int kChannels = Image::kChannels;
  const int64_t size = spec.patch_size, frame = size * size;
  const int num_frames = std::max(1, spec.num_frames);
  // Mean and deviation of pixels from 0 to 255, in float32 as torchvision computes them.
  float mean[kChannels], deviation[kChannels];
  for (size_t c = 0; c < kChannels; ++c) {
    mean[c] = spec.mean[c] * 255.0f;
    deviation[c] = spec.std[c] * 255.0f;
  }
  Tensor patches = Tensor::empty({end - begin, kChannels * num_frames * frame}, DType::kF32);
  parallel_for_rows(end - begin, patches.shape(1), [&](int64_t i) {
    const auto index = static_cast<size_t>(begin + i);
    const int64_t top = layout.patch_rows[index] * size, left = layout.patch_columns[index] * size;
    float* to = patches.view()[i].as<float>();
    if (spec.channels_last) {
      for (int64_t y = 0; y < size; ++y) {
        const uint8_t* from =
            image.pixels.pixels.data() + ((top + y) * image.pixels.width + left) * kChannels;
        // transformers multiplies by this number and does not divide.
        constexpr auto kScale = static_cast<float>(1.0 / 255.0);
        for (int64_t x = 0; x < size * kChannels; ++x)
          *to++ = 2.0f * (static_cast<float>(*from++) * kScale - 0.5f);
      }
      return;
    }
    for (int c = 0; c < kChannels; ++c) {
      float* const first_frame = to;
      for (int64_t y = 0; y < size; ++y) {
        const uint8_t* from =
            image.pixels.pixels.data() + ((top + y) * image.pixels.width + left) * kChannels + c;
        for (int64_t x = 0; x < size; ++x, from += kChannels)
          *to++ = (static_cast<float>(*from) - mean[c]) / deviation[c];
      }
      for (int repeated = 1; repeated < num_frames; ++repeated) to = std::copy_n(first_frame, frame, to);
    }
  });
  return patches;
}

}  // namespace attend
