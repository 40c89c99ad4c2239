// Waits that Ctrl-C interrupts.
#pragma once

#include <atomic>
#include <chrono>
#include <future>

#include "attend/base/error.h"
#include "released_gil.h"

namespace attend::python {

// Maximum delay of Ctrl-C.
inline constexpr std::chrono::milliseconds kBetweenSignals{50};

// Calls `ready` repeatedly without the GIL until it returns true. Throws on Ctrl-C.
template <class Ready>
void wait_interruptibly(Ready ready) {
  for (bool done = false; !done;) {
    {
      const ReleasedGil others_run;
      done = ready();
    }
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }
}

// Returns what `load` returns, which runs on another thread. `load` gets a function to call regularly; after
// Ctrl-C it throws Error(kInternal).
template <class Load>
auto load_interruptibly(Load load) {
  std::atomic<bool> interrupted = false;
  const auto check = [&] {
    if (interrupted) fail(ErrorCode::kInternal, "interrupted");
  };
  auto made = std::async(std::launch::async, [&] { return load(check); });
  try {
    wait_interruptibly([&] { return made.wait_for(kBetweenSignals) == std::future_status::ready; });
  } catch (...) {
    interrupted = true;
    const ReleasedGil others_run;
    made.wait();
    throw;
  }
  return made.get();
}

}  // namespace attend::python
