// clang-format off
#include <cstdio>  // jpeglib.h requires size_t and FILE
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string>

#include "attend/media/decoders.h"

namespace attend {
namespace {

constexpr unsigned kExifTagBytes = 6;  // "Exif\0\0"

// State of one decoder. libjpeg reports errors by a callback that must not return. It jumps back to
// run_jpeg(), past C frames only.
struct Jpeg {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf on_error;
  char message[JMSG_LENGTH_MAX];
  bool failed;
  bool has_ended;  // the data, before the end marker
  int max_scans;

  static Jpeg& of(j_common_ptr info) { return *static_cast<Jpeg*>(info->client_data); }
};

[[noreturn]] void jump(Jpeg& jpeg) {
  jpeg.failed = true;
  std::longjmp(jpeg.on_error, 1);
}

[[noreturn]] void on_jpeg_error(j_common_ptr info) {
  Jpeg& jpeg = Jpeg::of(info);
  info->err->format_message(info, jpeg.message);
  jump(jpeg);
}

// libjpeg replaces the end of the data by an end marker. Rows that are not complete are then an error, as in
// Pillow; some cameras write no end marker. Other warnings are about bytes that decoders skip.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  Jpeg& jpeg = Jpeg::of(info);
  if (info->err->msg_code == JWRN_JPEG_EOF) jpeg.has_ended = true;
  if (info->err->msg_code != JWRN_HIT_MARKER || !jpeg.has_ended) return;
  std::snprintf(jpeg.message, sizeof(jpeg.message), "the file is truncated");
  jump(jpeg);
}

void on_progress(j_common_ptr info) {
  Jpeg& jpeg = Jpeg::of(info);
  const int scans = reinterpret_cast<j_decompress_ptr>(info)->input_scan_number;
  if (scans <= jpeg.max_scans) return;
  std::snprintf(jpeg.message, sizeof(jpeg.message), "more than %d scans", jpeg.max_scans);
  jump(jpeg);
}

// Runs a part of the decoder. Returns false after an error. `part` owns nothing: a jump skips destructors.
template <class Part>
bool run_jpeg(Jpeg& jpeg, const Part& part) {
  if (setjmp(jpeg.on_error) == 0) part();
  return !jpeg.failed;
}

struct Decompressor {
  Jpeg jpeg{};

  explicit Decompressor(int max_scans) {
    jpeg.info.err = jpeg_std_error(&jpeg.errors);
    jpeg.info.client_data = &jpeg;
    jpeg.errors.error_exit = on_jpeg_error;
    jpeg.errors.emit_message = on_message;
    jpeg.max_scans = max_scans;
    step([this] { jpeg_create_decompress(&jpeg.info); });
    jpeg.progress.progress_monitor = on_progress;
    jpeg.info.progress = &jpeg.progress;
  }
  ~Decompressor() { jpeg_destroy_decompress(&jpeg.info); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  template <class Part>
  void step(const Part& part) {
    if (!run_jpeg(jpeg, part)) fail(ErrorCode::kCorruptFile, "JPEG image: ", jpeg.message);
  }
};

int read_orientation(const jpeg_decompress_struct& info) {
  for (const jpeg_marker_struct* marker = info.marker_list; marker != nullptr; marker = marker->next) {
    const std::span<const std::byte> data(reinterpret_cast<const std::byte*>(marker->data),
                                          marker->data_length);
    if (data.size() < kExifTagBytes || std::memcmp(data.data(), "Exif\0", 5) != 0) continue;
    return exif_orientation(data.subspan(kExifTagBytes));
  }
  return 1;
}

// Pillow's conversion. CMYK files store inverted values, as Adobe's programs write them.
void convert_cmyk(const uint8_t* cmyk, int width, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, cmyk += 4)
    for (int channel = 0; channel < 3; ++channel) {
      const int ink = 255 - cmyk[channel], light = cmyk[3];
      const int product = ink * light + 128;
      *rgb++ = static_cast<uint8_t>(std::max(0, light - (((product >> 8) + product) >> 8)));
    }
}

}  // namespace

bool is_jpeg(std::span<const std::byte> file) {
  return file.size() >= 3 && file[0] == std::byte{0xff} && file[1] == std::byte{0xd8} &&
         file[2] == std::byte{0xff};
}

OrientedImage decode_jpeg(std::span<const std::byte> file, const ImageLimits& limits) {
  Decompressor decompressor(limits.max_scans);
  jpeg_decompress_struct& info = decompressor.jpeg.info;
  decompressor.step([&] {
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()),
                 static_cast<unsigned long>(file.size()));
    jpeg_save_markers(&info, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&info, TRUE);
    info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  });
  check_size("JPEG", info.image_width, info.image_height, limits);
  const auto width = static_cast<int>(info.image_width), height = static_cast<int>(info.image_height);
  const bool is_cmyk = info.out_color_space == JCS_CMYK;
  OrientedImage out{.image = {.width = width, .height = height}, .orientation = read_orientation(info)};
  const size_t row_bytes = static_cast<size_t>(width) * Image::kChannels;
  out.image.pixels.resize(row_bytes * static_cast<size_t>(height));
  std::vector<uint8_t> cmyk(is_cmyk ? static_cast<size_t>(width) * 4 : 0);
  decompressor.step([&] {
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      uint8_t* const to = out.image.pixels.data() + row_bytes * info.output_scanline;
      uint8_t* row = is_cmyk ? cmyk.data() : to;
      jpeg_read_scanlines(&info, &row, 1);
      if (is_cmyk) convert_cmyk(row, width, to);
    }
    jpeg_finish_decompress(&info);
  });
  return out;
}

}  // namespace attend
