#include "attend/base/gigabytes.h"

#include <fmt/format.h>

namespace attend {

std::string gigabytes_beside(double num_bytes) {
  return num_bytes < 1e8 ? std::string() : fmt::format(" ({:.1f} GB)", 1e-9 * num_bytes);
}

}  // namespace attend
