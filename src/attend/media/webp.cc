#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>
#include <vector>

#include "attend/media/decoders.h"

namespace attend {

bool is_webp(std::span<const std::byte> file) {
  return file.size() >= 12 && std::memcmp(file.data(), "RIFF", 4) == 0 &&
         std::memcmp(file.data() + 8, "WEBP", 4) == 0;
}

OrientedImage decode_webp(std::span<const std::byte> file, const ImageLimits& limits) {
  const WebPData data{.bytes = reinterpret_cast<const uint8_t*>(file.data()), .size = file.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&data), WebPDemuxDelete);
  if (!demuxer) fail(ErrorCode::kCorruptFile, "WebP image: damaged or truncated");
  const uint32_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                 height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  check_size("WebP", width, height, limits);
  int orientation = 1;
  WebPChunkIterator chunk{};
  if (WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &chunk) != 0) {
    std::span<const std::byte> exif(reinterpret_cast<const std::byte*>(chunk.chunk.bytes), chunk.chunk.size);
    // Some programs write the marker of JPEG files too.
    if (exif.size() >= 6 && std::memcmp(exif.data(), "Exif\0", 5) == 0) exif = exif.subspan(6);
    orientation = exif_orientation(exif);
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0)
    fail(ErrorCode::kInternal, "WebP: another version of libwebp");
  options.color_mode = MODE_RGBA;
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> decoder(
      WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  uint8_t* rgba = nullptr;
  int timestamp = 0;
  if (!decoder || WebPAnimDecoderGetNext(decoder.get(), &rgba, &timestamp) == 0)
    fail(ErrorCode::kCorruptFile, "WebP image of ", width, " x ", height, ": damaged or truncated");
  const auto num_bytes = static_cast<size_t>(int64_t{width} * height) * 4;
  return {.image = over_white(static_cast<int>(width), static_cast<int>(height), {rgba, num_bytes}),
          .orientation = orientation};
}

}  // namespace attend
