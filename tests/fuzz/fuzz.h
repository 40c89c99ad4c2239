// What the fuzz targets share.
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

// Ends the run, so that the fuzzer keeps the input.
inline void expect(bool ok) {
  if (!ok) std::abort();
}

// Bad input may be refused, but only with an Error that blames the input.
template <class Fn>
void may_refuse(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    expect(error.code() != ErrorCode::kInternal && *error.what() != '\0');
  }
}

// A folder of this process in memory; it stays for the next input, and the system clears it.
inline const std::filesystem::path& folder() {
  static const std::filesystem::path path = [] {
    set_log_level(LogLevel::kError);
    const std::filesystem::path memory("/dev/shm");
    std::string name =
        ((std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path()) /
         "attend_fuzz_XXXXXX")
            .string();
    expect(mkdtemp(name.data()) != nullptr);
    return std::filesystem::path(name);
  }();
  return path;
}

inline void write_file(const char* name, std::string_view bytes) {
  std::ofstream(folder() / name, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace attend::fuzz
