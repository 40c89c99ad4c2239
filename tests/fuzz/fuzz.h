// Functions shared by the fuzz targets.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "attend/base/error.h"
#include "attend/base/log.h"

namespace attend::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Aborts, so that the fuzzer keeps the input.
inline void expect(bool ok) {
  if (!ok) std::abort();
}

// Runs `fn`, which may reject its input with an Error other than kInternal.
template <class Fn>
void may_reject(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    expect(error.code() != ErrorCode::kInternal && *error.what() != '\0');
  }
}

// Folder of this process, in memory if possible, deleted at the end of the run.
class Folder {
 public:
  Folder() {
    set_log_level(LogLevel::kError);
    const std::filesystem::path memory("/dev/shm");
    const auto parent =
        std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
    std::string name = (parent / "attend_fuzz_XXXXXX").string();
    expect(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline const std::filesystem::path& folder() {
  static const Folder the_folder;
  return the_folder.path();
}

inline void write_file(const char* name, std::string_view bytes) {
  std::ofstream(folder() / name, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace attend::fuzz
