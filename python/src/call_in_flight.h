// Calls of this module that are running, so that none is running when the interpreter ends.
//
// When the interpreter ends, Python before 3.14 ends each daemon thread that acquires the GIL, also one that
// only gives way to another thread while it runs Python code. pthread_exit() then unwinds the thread's stack,
// and aborts the process at the first noexcept function. Every call of this module has one on its stack, and
// may run Python code: imports, exports of tensors, finalizers. So attend/engine.py registers a function that
// first stops new calls, and then waits until those in flight are at their ends. Threads in either place wait
// there for the end of the process. If the process has not ended after a second, for example because a
// function of atexit joins the thread, a call that was in flight returns, and a new one throws
// Error(kUnsupported). The thread that ends the interpreter may always call.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <utility>

namespace attend::python {

// Guard of a call, created with the GIL held. Calls within a call are part of it.
class CallInFlight {
 public:
  CallInFlight();
  ~CallInFlight();
  CallInFlight(const CallInFlight&) = delete;
  CallInFlight& operator=(const CallInFlight&) = delete;
};

// Stops new calls, except on the calling thread, which ends the interpreter.
void stop_calls();

// Waits without the GIL until no other thread is in a call, until the timeout, or until Ctrl-C. Call after
// stop_calls().
void await_calls(std::chrono::milliseconds timeout);

// nanobind::module_ that guards its functions by CallInFlight.
class Module : public nanobind::module_ {
 public:
  explicit Module(const nanobind::module_& module) : nanobind::module_(module) {}

  template <class Function, class... Extra>
  Module& def(const char* name, Function&& function, const Extra&... extra) {
    nanobind::module_::def(name, std::forward<Function>(function), nanobind::call_guard<CallInFlight>(),
                           extra...);
    return *this;
  }
};

// nanobind::class_ that guards its functions by CallInFlight.
template <class T>
class Class : public nanobind::class_<T> {
 public:
  using nanobind::class_<T>::class_;

  // nanobind::init or nanobind::new_.
  template <class Constructor, class... Extra>
  Class& def(nanobind::def_visitor<Constructor>&& constructor, const Extra&... extra) {
    nanobind::class_<T>::def(std::move(constructor), nanobind::call_guard<CallInFlight>(), extra...);
    return *this;
  }
  template <class Function, class... Extra>
  Class& def(const char* name, Function&& function, const Extra&... extra) {
    nanobind::class_<T>::def(name, std::forward<Function>(function), nanobind::call_guard<CallInFlight>(),
                             extra...);
    return *this;
  }
  template <class Function, class... Extra>
  Class& def_static(const char* name, Function&& function, const Extra&... extra) {
    nanobind::class_<T>::def_static(name, std::forward<Function>(function),
                                    nanobind::call_guard<CallInFlight>(), extra...);
    return *this;
  }
  template <class Getter, class... Extra>
  Class& def_prop_ro(const char* name, Getter&& getter, const Extra&... extra) {
    nanobind::class_<T>::def_prop_ro(name, std::forward<Getter>(getter), nanobind::call_guard<CallInFlight>(),
                                     extra...);
    return *this;
  }
};

}  // namespace attend::python
