#include "attend/cli/npy.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "attend/base/error.h"

namespace attend::cli {

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
std::string npy_bytes(const std::vector<std::vector<float>>& rows) {
  static_assert(std::endian::native == std::endian::little);
  constexpr size_t kAlignment = 64, kBeforeHeader = 10;
  const size_t columns = rows.empty() ? 0 : rows.front().size();
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows.size(), columns);
  // Spaces and a newline, so that the numbers are aligned.
  header.append(kAlignment - 1 - (kBeforeHeader + header.size()) % kAlignment, ' ').append("\n");
  std::string bytes = "\x93NUMPY";
  bytes.append(
      {'\x01', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)});
  bytes += header;
  for (const std::vector<float>& row : rows) {
    ensure(row.size() == columns, "rows of ", columns, " and ", row.size(), " numbers in one array");
    bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
  }
  return bytes;
}

}  // namespace attend::cli
