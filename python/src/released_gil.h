// ReleasedGil: lets other Python threads run while a thread computes or waits.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace attend::python {

// Like nanobind::gil_scoped_release. When the interpreter ends, Python before 3.14 ends a daemon thread that
// acquires the GIL with pthread_exit(), which unwinds its stack. That would end the process in the first
// noexcept function on the stack. As Python 3.14 does, such a thread waits for the end of the process
// instead. CallInFlight covers Python code that C++ calls.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ~ReleasedGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      while (true) pause();
    }
  }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace attend::python
