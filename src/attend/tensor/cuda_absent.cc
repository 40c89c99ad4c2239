// Stubs of the GPU runtime for builds without CUDA.
#include "attend/base/without_cuda.h"
#include "attend/tensor/cuda.h"

namespace attend::cuda {
namespace {

// `what`: the requested device or operation.
template <class... What>
[[noreturn]] void throw_without_cuda(const What&... what) {
  fail(ErrorCode::kUnsupported, what..., ": ", kWithoutCuda);
}

}  // namespace

int device_count() { return 0; }
bool load_kernels_eagerly() { return false; }
DeviceInfo device_info(Device device) { throw_without_cuda("device ", device); }
DeviceScope::DeviceScope(Device device) { throw_without_cuda("device ", device); }
DeviceScope::~DeviceScope() = default;
RelaxedCapture::RelaxedCapture() { throw_without_cuda("capture mode"); }
RelaxedCapture::~RelaxedCapture() = default;
Tensor empty(std::initializer_list<int64_t>, DType, Device device) { throw_without_cuda("device ", device); }
Tensor zeros(std::initializer_list<int64_t>, DType, Device device) { throw_without_cuda("device ", device); }
Tensor empty_pinned(std::initializer_list<int64_t>, DType, Device device) {
  throw_without_cuda("device ", device);
}
std::shared_ptr<void> lock_pages(void*, size_t, Device device) { throw_without_cuda("device ", device); }
void copy(const TensorView&, const TensorView&, Stream& stream) {
  throw_without_cuda("device ", stream.device);
}
Tensor copy_to(const TensorView&, Device device) { throw_without_cuda("device ", device); }
void synchronize(const Stream& stream) { throw_without_cuda("device ", stream.device); }

OwnedStream::OwnedStream(Device device) { throw_without_cuda("device ", device); }
OwnedStream::~OwnedStream() = default;
OwnedStream::OwnedStream(OwnedStream&&) noexcept = default;
OwnedStream& OwnedStream::operator=(OwnedStream&&) noexcept = default;

Event::Event(Device device) { throw_without_cuda("device ", device); }
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
void Event::record(Stream& stream) { throw_without_cuda("device ", stream.device); }
void Event::synchronize() const { throw_without_cuda("event"); }
bool Event::has_completed() const { throw_without_cuda("event"); }
void Event::hold(Stream& stream) const { throw_without_cuda("device ", stream.device); }
float Event::milliseconds_since(const Event&) const { throw_without_cuda("time between events"); }

bool is_capturing(const Stream& stream) { throw_without_cuda("device ", stream.device); }
uint64_t capture_id(const Stream& stream) { throw_without_cuda("device ", stream.device); }

Graph::Graph(Stream& stream, const std::function<void()>&) { throw_without_cuda("device ", stream.device); }
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
void Graph::launch(Stream& stream) { throw_without_cuda("device ", stream.device); }

}  // namespace attend::cuda
