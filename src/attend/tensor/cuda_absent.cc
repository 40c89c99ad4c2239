// The GPU of a build without CUDA: there is none.
#include "attend/base/without_cuda.h"
#include "attend/tensor/cuda.h"

namespace attend::cuda {
namespace {

// `what`: the device that was asked for, or the thing that serves all of them.
template <class... What>
[[noreturn]] void refuse(const What&... what) {
  fail(ErrorCode::kUnsupported, what..., ": ", kWithoutCuda);
}

}  // namespace

int device_count() { return 0; }
DeviceInfo device_info(Device device) { refuse("device ", device); }
DeviceScope::DeviceScope(Device device) { refuse("device ", device); }
DeviceScope::~DeviceScope() = default;
CaptureTolerance::CaptureTolerance() { refuse("capture mode"); }
CaptureTolerance::~CaptureTolerance() = default;
Tensor empty(std::initializer_list<int64_t>, DType, Device device) { refuse("device ", device); }
Tensor zeros(std::initializer_list<int64_t>, DType, Device device) { refuse("device ", device); }
Tensor empty_pinned(std::initializer_list<int64_t>, DType, Device device) { refuse("device ", device); }
void copy(const TensorView&, const TensorView&, Stream& stream) { refuse("device ", stream.device); }
Tensor copy_to(const TensorView&, Device device) { refuse("device ", device); }
void synchronize(const Stream& stream) { refuse("device ", stream.device); }

OwnedStream::OwnedStream(Device device) { refuse("device ", device); }
OwnedStream::~OwnedStream() = default;
OwnedStream::OwnedStream(OwnedStream&&) noexcept = default;
OwnedStream& OwnedStream::operator=(OwnedStream&&) noexcept = default;

Event::Event(Device device) { refuse("device ", device); }
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
void Event::record(Stream& stream) { refuse("device ", stream.device); }
void Event::synchronize() const { refuse("event"); }
float Event::milliseconds_since(const Event&) const { refuse("time between events"); }

bool is_recording(const Stream& stream) { refuse("device ", stream.device); }
uint64_t recording_id(const Stream& stream) { refuse("device ", stream.device); }

Graph::Graph(Stream& stream, const std::function<void()>&) { refuse("device ", stream.device); }
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
void Graph::launch(Stream& stream) { refuse("device ", stream.device); }

}  // namespace attend::cuda
