// Touches the first page of a pool in host memory, on a separate thread, while the engine starts. The
// operating system clears memory on the first write, two MiB at a time, and the first step would wait for
// that in every layer.
#pragma once

#include <thread>

#include "attend/kv/kv_pool.h"

namespace attend {

class FirstPageWarmup {
 public:
  // Touches page 1 of `num_layers` layers, which is allocated first. The pool must outlive this object, and
  // nothing may be stored in the page before the destructor. Does nothing if no thread can be started.
  FirstPageWarmup(const KvPool& pool, int num_layers);
  // Waits for the thread.
  ~FirstPageWarmup();
  FirstPageWarmup(const FirstPageWarmup&) = delete;

 private:
  std::thread thread_;
};

}  // namespace attend
