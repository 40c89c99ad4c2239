// GPU runtime: devices, memory, copies, streams, events and graphs. This header needs no CUDA header. In a
// build without CUDA, device_count() is 0 and the rest throws Error(kUnsupported).
//
// Every function throws Error(kDevice) with CUDA's message if a call fails, and Error(kUnsupported) on a
// machine without an NVIDIA driver or with one older than the CUDA of this build.
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

// Returns the number of GPUs visible to the driver; 0 without a driver or GPU, and in a build without CUDA.
int device_count();

// Initializes the driver such that it loads all kernels of a device when the device is first used, and not
// each one when it is first launched (CUDA programming guide, "Lazy Loading"). Returns false if the driver
// was initialized before, with another mode.
bool load_kernels_eagerly();

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int num_sms = 0;
  size_t l2_bytes = 0;
  size_t free_bytes = 0, total_bytes = 0;  // free at the time of the call
};
// Throws Error(kInvalidArgument) unless `device` is an existing GPU.
DeviceInfo device_info(Device device);

// Makes `device` the calling thread's device during its lifetime.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  // Unused in a build without CUDA.
  [[maybe_unused]] int previous_ = 0;
  [[maybe_unused]] bool changed_ = false;
};

// During its lifetime, the calling thread may allocate while one of its streams is being captured.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  [[maybe_unused]] int previous_ = 0;  // unused in a build without CUDA
};

// Allocates device memory, uninitialized or zeroed, 256-byte aligned. Throws Error(kOutOfMemory) with
// requested and free bytes. Freed with the last tensor that shares it, after all pending work of the device.
Tensor empty(std::initializer_list<int64_t> shape, DType dtype, Device device);
Tensor zeros(std::initializer_list<int64_t> shape, DType dtype, Device device);
// Allocates page-locked host memory. Copies to `device` from it are asynchronous, and kernels can write to
// it.
Tensor empty_pinned(std::initializer_list<int64_t> shape, DType dtype, Device device);

// Page-locks memory of the host until the last copy of the result is destroyed: kernels and asynchronous
// copies of all GPUs can then access it. Throws Error(kOutOfMemory) with the number of bytes.
std::shared_ptr<void> lock_pages(void* data, size_t num_bytes, Device device);

// Copies bytes between host and device or within a device, in stream order. Both views are contiguous and
// have the same dtype and size. Pageable host memory makes the call synchronous.
void copy(const TensorView& from, const TensorView& to, Stream& stream);

// Returns a copy of a contiguous host tensor on `device`. Synchronous.
Tensor copy_to(const TensorView& from, Device device);

void synchronize(const Stream& stream);

// A stream that this object owns. Movable.
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

// Event in a stream. Movable.
class Event {
 public:
  explicit Event(Device device);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  void record(Stream& stream);
  void synchronize() const;
  // Returns whether all work before the last record() has completed; true if there was none.
  bool has_completed() const;
  // Later work of `stream`, which may be of another device, starts after the recorded event.
  void hold(Stream& stream) const;
  // Returns the milliseconds from `start` to this event; both must have completed.
  float milliseconds_since(const Event& start) const;

 private:
  [[maybe_unused]] void* handle_ = nullptr;
};

// Returns true while `stream` is capturing a graph.
bool is_capturing(const Stream& stream);
// Returns a unique id of the current capture; 0 if there is none.
uint64_t capture_id(const Stream& stream);

// Work that is captured once and launched many times. Movable.
class Graph {
 public:
  // Captures the work that `queue` adds to `stream`, without running it. Other threads may use other streams
  // during the capture.
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
