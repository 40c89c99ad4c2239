// MemoryReserve: what is given up when memory runs out, so that what must not fail then does not. Requests
// are read with a Json, which takes memory to be destroyed: where that failed, the server would end.
#pragma once

namespace attend::serve {

// One at a time in a process.
class MemoryReserve {
 public:
  // From then on operator new finds it before it throws.
  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;

  // Takes it again if it was given up and there is memory. From any thread; of no effect where there is none.
  static void restore() noexcept;
  static bool is_spent();
};

}  // namespace attend::serve
