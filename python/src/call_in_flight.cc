#include "call_in_flight.h"

#include <pthread.h>

#include <atomic>
#include <thread>

#include "attend/base/error.h"
#include "released_gil.h"

namespace attend::python {
namespace {

using Clock = std::chrono::steady_clock;

thread_local int depth = 0;      // of calls within calls
std::atomic<int> num_calls = 0;  // of all threads
std::atomic<bool> is_stopped = false;
thread_local bool ends_interpreter = false;  // true in the thread that called stop_calls()

bool must_wait() { return is_stopped && !ends_interpreter; }

// Does not return if the interpreter has ended.
void wait_for_exit() {
  const ReleasedGil others_run;
  std::this_thread::sleep_for(std::chrono::seconds(1));
}

// The child of a fork has none of the other threads.
void register_fork_handler() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { num_calls = depth > 0 ? 1 : 0; });
  (void)registered;
}

}  // namespace

CallInFlight::CallInFlight() {
  if (depth == 0) {
    register_fork_handler();
    if (must_wait()) {
      wait_for_exit();
      fail(ErrorCode::kUnsupported, "the Python interpreter is exiting");
    }
    ++num_calls;
  }
  ++depth;
}

CallInFlight::~CallInFlight() {
  if (--depth > 0) return;
  --num_calls;
  if (must_wait()) wait_for_exit();
}

void stop_calls() {
  ends_interpreter = true;
  is_stopped = true;
}

void await_calls(std::chrono::milliseconds timeout) {
  const int num_own = depth > 0 ? 1 : 0;
  for (const Clock::time_point end = Clock::now() + timeout; num_calls > num_own && Clock::now() < end;) {
    {
      const ReleasedGil others_run;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }
}

}  // namespace attend::python
