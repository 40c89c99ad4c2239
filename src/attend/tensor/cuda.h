// GPUs: what the machine has, memory, copies, streams and events. No CUDA header is needed here; in a build
// without CUDA, device_count() is 0 and the rest throws Error(kUnsupported).
//
// Every function throws Error(kDevice) with CUDA's text when a call fails, and Error(kUnsupported) on a
// machine without an NVIDIA driver or with one that is older than the CUDA of this build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::cuda {

// GPUs that the driver shows; 0 without a driver, without a GPU, and in a build without CUDA.
int device_count();

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int num_sms = 0;
  size_t l2_bytes = 0;
  size_t free_bytes = 0, total_bytes = 0;  // free when asked
};
// Throws Error(kInvalidArgument) unless `device` is a GPU that exists.
DeviceInfo device_info(Device device);

// Makes `device` the calling thread's device while it lives.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  // Not in a build without CUDA.
  [[maybe_unused]] int previous_ = 0;
  [[maybe_unused]] bool changed_ = false;
};

// While it lives, the calling thread may allocate though one of its streams is being captured.
class CaptureTolerance {
 public:
  CaptureTolerance();
  ~CaptureTolerance();
  CaptureTolerance(const CaptureTolerance&) = delete;
  CaptureTolerance& operator=(const CaptureTolerance&) = delete;

 private:
  [[maybe_unused]] int previous_ = 0;  // not in a build without CUDA
};

// Device memory, uninitialized / zeroed, 256-byte aligned. Throws Error(kOutOfMemory) with the bytes wanted
// and free. Freed, when the last tensor that shares it goes, after all work of the device.
Tensor empty(std::initializer_list<int64_t> shape, DType dtype, Device device);
Tensor zeros(std::initializer_list<int64_t> shape, DType dtype, Device device);
// Page-locked host memory, from which copies to `device` run beside host code and to which its kernels can
// write.
Tensor empty_pinned(std::initializer_list<int64_t> shape, DType dtype, Device device);

// Copies bytes between host and device or within a device, in stream order. Both are contiguous, of one dtype
// and size. Pageable host memory makes the call wait.
void copy(const TensorView& from, const TensorView& to, Stream& stream);

// A copy of a contiguous host tensor on `device`, done when the call returns.
Tensor copy_to(const TensorView& from, Device device);

void synchronize(const Stream& stream);

// A stream of its own. Movable.
class OwnedStream {
 public:
  explicit OwnedStream(Device device);
  ~OwnedStream();
  OwnedStream(OwnedStream&& other) noexcept;
  OwnedStream& operator=(OwnedStream&& other) noexcept;

  Stream& get() { return stream_; }

 private:
  Stream stream_;
};

// A point in a stream's work. Movable.
class Event {
 public:
  explicit Event(Device device);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  void record(Stream& stream);
  void synchronize() const;
  // Milliseconds from `start` to this; both have happened.
  float milliseconds_since(const Event& start) const;

 private:
  [[maybe_unused]] void* handle_ = nullptr;
};

// Whether what is queued on `stream` now is recorded for a graph instead of run.
bool is_recording(const Stream& stream);
// Which recording that is, unlike that of any other; 0 for none.
uint64_t recording_id(const Stream& stream);

// Work recorded once and launched many times. Movable.
class Graph {
 public:
  // Records what `queue` puts on `stream`, without running it. Work on other streams of other threads goes
  // on.
  Graph(Stream& stream, const std::function<void()>& queue);
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  void launch(Stream& stream);

 private:
  [[maybe_unused]] void* handle_ = nullptr;
};

}  // namespace attend::cuda
#pragma GCC visibility pop
