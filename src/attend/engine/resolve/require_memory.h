// Refuses what does not fit into memory before anything is allocated, in the words of whoever asked for it.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>

namespace attend {

struct MemoryPart {
  std::string what;   // "KV pool of 4096 tokens"
  double num_bytes;   // a product of sizes that may not fit a size_t
  std::string lower;  // the flag that makes it smaller
};

// Throws Error(kOutOfMemory) for the first part that does not fit beside those before it, with needed and
// free bytes and the flag: "KV pool of 4096 tokens: needed N bytes, free M; lower --max-total-tokens".
void require_memory(std::initializer_list<MemoryPart> parts, size_t free_bytes);

}  // namespace attend
