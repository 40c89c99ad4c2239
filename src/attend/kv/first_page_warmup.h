// Touches what the first tokens of a pool in the host's memory are stored to, on a thread of its own, while
// the rest of an engine starts. The system clears memory when it is first written, two MiB at a time: the
// first step would wait for that in every layer.
#pragma once

#include <thread>

#include "attend/kv/kv_pool.h"

namespace attend {

class FirstPageWarmup {
 public:
  // Of `num_layers` layers, page 1, which allocators hand out first. The pool must outlive this, and nothing
  // may be stored there meanwhile. Where the system starts no thread, nothing is touched.
  FirstPageWarmup(const KvPool& pool, int num_layers);
  // Waits for the thread.
  ~FirstPageWarmup();
  FirstPageWarmup(const FirstPageWarmup&) = delete;

 private:
  std::thread thread_;
};

}  // namespace attend
