#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include "attend/media/decoders.h"

namespace attend {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr png_alloc_size_t kMaxChunkBytes = 8 << 20;  // text, profiles and EXIF data

struct Source {
  std::span<const std::byte> rest;
  char message[128] = {};
};

// Both callbacks jump back to run_png(), past C frames only.
void on_png_error(png_structp png, png_const_charp message) {
  auto& source = *static_cast<Source*>(png_get_error_ptr(png));
  std::snprintf(source.message, sizeof(source.message), "%s", message);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto& source = *static_cast<Source*>(png_get_io_ptr(png));
  if (count > source.rest.size()) png_error(png, "the file is truncated");
  std::memcpy(to, source.rest.data(), count);
  source.rest = source.rest.subspan(count);
}

// Runs a part of the decoder. Returns false after an error. `part` owns nothing: a jump skips destructors.
template <class Part>
bool run_png(png_structp png, const Part& part) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  part();
  return true;
}

struct Reader {
  Source source;
  png_structp png = nullptr;
  png_infop info = nullptr, end = nullptr;

  explicit Reader(std::span<const std::byte> file) : source{.rest = file} {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, on_png_error, on_warning);
    if (png != nullptr) {
      info = png_create_info_struct(png);
      end = png_create_info_struct(png);
    }
    if (info == nullptr || end == nullptr) {
      png_destroy_read_struct(&png, &info, &end);
      throw std::bad_alloc();
    }
  }
  ~Reader() { png_destroy_read_struct(&png, &info, &end); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  template <class Part>
  void step(const Part& part) {
    if (!run_png(png, part)) fail(ErrorCode::kCorruptFile, "PNG image: ", source.message);
  }

  int orientation() {
    for (png_infop part : {info, end}) {
      png_bytep exif = nullptr;
      png_uint_32 count = 0;
      if (png_get_eXIf_1(png, part, &count, &exif) == 0) continue;
      return exif_orientation({reinterpret_cast<const std::byte*>(exif), count});
    }
    return 1;
  }
};

}  // namespace

bool is_png(std::span<const std::byte> file) {
  return file.size() >= kSignatureBytes &&
         png_sig_cmp(reinterpret_cast<png_const_bytep>(file.data()), 0, kSignatureBytes) == 0;
}

OrientedImage decode_png(std::span<const std::byte> file, const ImageLimits& limits) {
  Reader reader(file);
  png_structp png = reader.png;
  reader.step([&] {
    png_set_read_fn(png, &reader.source, read_bytes);
    png_set_chunk_malloc_max(png, kMaxChunkBytes);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_read_info(png, reader.info);
  });
  check_size("PNG", png_get_image_width(png, reader.info), png_get_image_height(png, reader.info), limits);
  const auto width = static_cast<int>(png_get_image_width(png, reader.info)),
             height = static_cast<int>(png_get_image_height(png, reader.info));
  size_t row_bytes = 0;
  reader.step([&] {
    png_set_palette_to_rgb(png);
    png_set_expand_gray_1_2_4_to_8(png);
    if (png_get_valid(png, reader.info, PNG_INFO_tRNS) != 0) png_set_tRNS_to_alpha(png);
    png_set_strip_16(png);
    png_set_gray_to_rgb(png);
    png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
    png_set_interlace_handling(png);
    png_read_update_info(png, reader.info);
    row_bytes = png_get_rowbytes(png, reader.info);
  });
  ensure(row_bytes == static_cast<size_t>(width) * 4, "PNG rows of ", row_bytes, " bytes for ", width,
         " pixels of RGBA");
  std::vector<uint8_t> rgba(row_bytes * static_cast<size_t>(height));
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = rgba.data() + y * row_bytes;
  reader.step([&] {
    png_read_image(png, rows.data());
    png_read_end(png, reader.end);
  });
  return {.image = over_white(width, height, rgba), .orientation = reader.orientation()};
}

}  // namespace attend
