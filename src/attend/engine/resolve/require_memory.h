// Checks that planned allocations fit into memory, before anything is allocated.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>

namespace attend {

struct MemoryPart {
  std::string what;   // "KV pool of 4096 tokens"
  double num_bytes;   // a product of sizes that may not fit a size_t
  std::string lower;  // flag that reduces it
};

// Throws Error(kOutOfMemory) for the first part that does not fit in addition to the parts before it, with
// needed and free bytes and the flag: "KV pool of 4096 tokens: needed N bytes, free M; lower
// --max-total-tokens".
void require_memory(std::initializer_list<MemoryPart> parts, size_t free_bytes);

}  // namespace attend
