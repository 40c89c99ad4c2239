#include "attend/engine/require_memory.h"

#include "attend/base/error.h"

namespace attend {

void require_host_memory(std::initializer_list<MemoryPart> parts, size_t free_bytes) {
  for (const MemoryPart& part : parts) {
    if (part.num_bytes > free_bytes)
      fail(ErrorCode::kOutOfMemory, part.what, ": needed ", part.num_bytes, " bytes, free ", free_bytes,
           "; lower ", part.lower);
    free_bytes -= part.num_bytes;
  }
}

}  // namespace attend
