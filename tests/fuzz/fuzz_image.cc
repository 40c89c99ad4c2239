// Input: an image file. Its header must not declare more pixels than a small limit.
#include "attend/media/image.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attend;
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  constexpr ImageLimits kLimits{.max_pixels = 1 << 14, .max_scans = 20};
  fuzz::may_reject([&] {
    const Image image = decode_image(file, kLimits);
    fuzz::expect(image.width > 0 && image.height > 0 && image.num_pixels() <= kLimits.max_pixels);
    fuzz::expect(std::ssize(image.pixels) == image.num_pixels() * Image::kChannels);
    const Image small = resize(image, 5, 3, ResizeFilter::kBicubic);
    fuzz::expect(small.pixels.size() == 5 * 3 * Image::kChannels);
  });
  return 0;
}
