#include "attend/tensor/cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

#include "attend/tensor/cuda_check.h"
#include "attend/tensor/driver_version.h"

namespace attend::cuda {
namespace {

cudaStream_t to_cuda_stream(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle); }

Tensor made(std::initializer_list<int64_t> shape, DType dtype, Device device, void* data,
            void (*release)(void*)) {
  return {TensorView::contiguous(data, dtype, shape, device), std::shared_ptr<void>(data, release)};
}

void free_device(void* data) { cudaFree(data); }
void free_pinned(void* data) { cudaFreeHost(data); }

// Returns the bytes of a tensor. Zero-size tensors use one byte, so that their pointer is not null.
size_t count_bytes(std::initializer_list<int64_t> shape, DType dtype) {
  return std::max<size_t>(1, TensorView::contiguous(nullptr, dtype, shape).num_bytes());
}

// Returns true for errors after which every call of this process on the device fails; its memory is
// undefined.
bool is_device_lost(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorMisalignedAddress:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
      return true;
    default:
      return false;
  }
}

// CUDA reports a missing driver as a version that is too old.
void require_supported_driver(std::string_view what) {
  int driver_version = 0, runtime_version = 0;
  if (cudaDriverGetVersion(&driver_version) == cudaSuccess &&
      cudaRuntimeGetVersion(&runtime_version) == cudaSuccess)
    require_driver(what, driver_version, runtime_version);
}

std::string device_name(Device device) {
  std::ostringstream text;
  text << "device " << device;
  return text.str();
}

}  // namespace

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();
  if (status == cudaErrorInsufficientDriver) require_supported_driver(what);
  if (is_device_lost(status))
    fail(ErrorCode::kDevice, what, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status),
         "): the GPU cannot be used by this process any more");
  fail(ErrorCode::kDevice, what, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
}

DeviceScope::DeviceScope(Device device) {
  require(device.type == DeviceType::kCuda, "device ", device, ": expected a GPU");
  cudaError_t status = cudaGetDevice(&previous_);
  changed_ = status == cudaSuccess && previous_ != device.index;
  if (changed_) status = cudaSetDevice(device.index);
  if (status != cudaSuccess) [[unlikely]]
    check(status, device_name(device));
}
DeviceScope::~DeviceScope() {
  if (changed_) cudaSetDevice(previous_);
}

RelaxedCapture::RelaxedCapture() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check(cudaThreadExchangeStreamCaptureMode(&mode), "capture mode");
  previous_ = mode;
}
RelaxedCapture::~RelaxedCapture() {
  auto mode = static_cast<cudaStreamCaptureMode>(previous_);
  cudaThreadExchangeStreamCaptureMode(&mode);
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

bool load_kernels_eagerly() {
  setenv("CUDA_MODULE_LOADING", "EAGER", /*replace=*/1);
  if (device_count() == 0) return false;
  constexpr unsigned kVersion = 11070;  // first version of CUDA with this function
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion("cuModuleGetLoadingMode", &function, kVersion, cudaEnableDefault,
                                         &result),
        "cuModuleGetLoadingMode");
  CUmoduleLoadingMode mode = CU_MODULE_LAZY_LOADING;
  return result == cudaDriverEntryPointSuccess &&
         reinterpret_cast<decltype(&cuModuleGetLoadingMode)>(function)(&mode) == CUDA_SUCCESS &&
         mode == CU_MODULE_EAGER_LOADING;
}

DeviceInfo device_info(Device device) {
  require(device.type == DeviceType::kCuda, "device ", device, ": expected a GPU");
  require_supported_driver(device_name(device));
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    cudaGetLastError();
    fail(ErrorCode::kInvalidArgument, "device ", device, ": ", cudaGetErrorString(status));
  }
  require_gpu(device, count);
  const DeviceScope scope(device);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device.index), "device properties");
  DeviceInfo info{.name = properties.name,
                  .major = properties.major,
                  .minor = properties.minor,
                  .num_sms = properties.multiProcessorCount,
                  .l2_bytes = static_cast<size_t>(properties.l2CacheSize)};
  check(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "device memory");
  return info;
}

Tensor empty(std::initializer_list<int64_t> shape, DType dtype, Device device) {
  const DeviceScope scope(device);
  const size_t num_bytes = count_bytes(shape, dtype);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, num_bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(ErrorCode::kOutOfMemory, device, ": needed ", num_bytes, " bytes, free ",
         device_info(device).free_bytes);
  }
  check(status, "device memory");
  return made(shape, dtype, device, data, free_device);
}

Tensor zeros(std::initializer_list<int64_t> shape, DType dtype, Device device) {
  const DeviceScope scope(device);
  Tensor tensor = empty(shape, dtype, device);
  check(cudaMemset(tensor.view().data, 0, tensor.view().num_bytes()), "zeroed device memory");
  // Streams that do not synchronize with the default stream could overtake the memset.
  check(cudaStreamSynchronize(cudaStreamLegacy), "zeroed device memory");
  return tensor;
}

Tensor empty_pinned(std::initializer_list<int64_t> shape, DType dtype, Device device) {
  const DeviceScope scope(device);
  const size_t num_bytes = count_bytes(shape, dtype);
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, num_bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(ErrorCode::kOutOfMemory, "page-locked host memory: needed ", num_bytes, " bytes");
  }
  check(status, "page-locked host memory");
  return made(shape, dtype, Device{}, data, free_pinned);
}

std::shared_ptr<void> lock_pages(void* data, size_t num_bytes, Device device) {
  const DeviceScope scope(device);
  const cudaError_t status =
      cudaHostRegister(data, num_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (status != cudaSuccess) {
    cudaGetLastError();
    fail(ErrorCode::kOutOfMemory, "page-locked host memory: ", num_bytes,
         " bytes cannot be locked: ", cudaGetErrorString(status));
  }
  return {data, [](void* locked) { cudaHostUnregister(locked); }};
}

void copy(const TensorView& from, const TensorView& to, Stream& stream) {
  require(from.is_contiguous() && to.is_contiguous() && from.dtype == to.dtype &&
              from.num_elements() == to.num_elements(),
          "copy from ", from, " to ", to, ": expected contiguous tensors of one dtype and size");
  const DeviceScope scope(stream.device);
  check(cudaMemcpyAsync(to.data, from.data, from.num_bytes(), cudaMemcpyDefault, to_cuda_stream(stream)),
        "copy");
}

Tensor copy_to(const TensorView& from, Device device) {
  OwnedStream stream(device);
  const Tensor flat = empty({from.num_elements()}, from.dtype, device);
  copy(from.reshape({from.num_elements()}), flat, stream.get());
  synchronize(stream.get());
  const std::span<const int64_t> shape(from.shape.data(), static_cast<size_t>(from.rank));
  return {TensorView::contiguous(flat.view().data, from.dtype, shape, device), flat.storage()};
}

void synchronize(const Stream& stream) {
  const DeviceScope scope(stream.device);
  check(cudaStreamSynchronize(to_cuda_stream(stream)), "stream");
}

OwnedStream::OwnedStream(Device device) : stream_{device, nullptr} {
  const DeviceScope scope(device);
  cudaStream_t handle = nullptr;
  check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "new stream");
  stream_.handle = handle;
}
OwnedStream::~OwnedStream() {
  if (stream_.handle != nullptr) cudaStreamDestroy(to_cuda_stream(stream_));
}
OwnedStream::OwnedStream(OwnedStream&& other) noexcept
    : stream_{other.stream_.device, std::exchange(other.stream_.handle, nullptr)} {}
OwnedStream& OwnedStream::operator=(OwnedStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

Event::Event(Device device) {
  const DeviceScope scope(device);
  cudaEvent_t handle = nullptr;
  check(cudaEventCreate(&handle), "new event");
  handle_ = handle;
}
Event::~Event() {
  if (handle_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(handle_));
}
Event::Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

void Event::record(Stream& stream) {
  check(cudaEventRecord(static_cast<cudaEvent_t>(handle_), to_cuda_stream(stream)), "event record");
}
void Event::synchronize() const { check(cudaEventSynchronize(static_cast<cudaEvent_t>(handle_)), "event"); }
bool Event::has_completed() const {
  const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(handle_));
  if (status == cudaErrorNotReady) return false;
  check(status, "event");
  return true;
}
void Event::hold(Stream& stream) const {
  check(cudaStreamWaitEvent(to_cuda_stream(stream), static_cast<cudaEvent_t>(handle_), 0),
        "wait for an event");
}
float Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0.0f;
  check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(start.handle_),
                             static_cast<cudaEvent_t>(handle_)),
        "time between events");
  return milliseconds;
}

bool is_capturing(const Stream& stream) { return capture_id(stream) != 0; }

uint64_t capture_id(const Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  check(cudaStreamGetCaptureInfo(to_cuda_stream(stream), &status, &id), "capture");
  return status == cudaStreamCaptureStatusNone ? 0 : id;
}

Graph::Graph(Stream& stream, const std::function<void()>& queue) {
  const DeviceScope scope(stream.device);
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(to_cuda_stream(stream), cudaStreamCaptureModeThreadLocal), "capture");
  try {
    queue();
  } catch (...) {
    cudaStreamEndCapture(to_cuda_stream(stream), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(to_cuda_stream(stream), &graph), "capture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "graph");
  handle_ = executable;
  // The first launch would upload it, and could wait for kernels of other streams that wait for this launch.
  check(cudaGraphUpload(executable, to_cuda_stream(stream)), "graph");
}
Graph::~Graph() {
  if (handle_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_));
}
Graph::Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}
void Graph::launch(Stream& stream) {
  const DeviceScope scope(stream.device);
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_), to_cuda_stream(stream)), "graph launch");
}

}  // namespace attend::cuda
