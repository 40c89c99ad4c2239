#include "attend/engine/resolve/require_memory.h"

#include <iomanip>
#include <sstream>

#include "attend/base/error.h"
#include "attend/base/printable.h"

namespace attend {
namespace {

// Formats a number without an exponent.
std::string whole(double number) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(0) << number;
  return text.str();
}

}  // namespace

void require_memory(std::initializer_list<MemoryPart> parts, size_t free_bytes) {
  for (const MemoryPart& part : parts) {
    if (part.num_bytes > static_cast<double>(free_bytes))
      fail(ErrorCode::kOutOfMemory, part.what, ": needed ", whole(part.num_bytes), " bytes",
           gigabytes_suffix(part.num_bytes), ", free ", free_bytes,
           gigabytes_suffix(static_cast<double>(free_bytes)), "; lower ", part.lower);
    free_bytes -= static_cast<size_t>(part.num_bytes);
  }
}

}  // namespace attend
