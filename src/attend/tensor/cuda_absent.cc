// The GPU of a build without CUDA: there is none.
#include "attend/tensor/cuda.h"

namespace attend::cuda {
namespace {

[[noreturn]] void refuse(Device device = {DeviceType::kCuda, 0}) {
  fail(ErrorCode::kUnsupported, "device ", device, ": this build was made without CUDA");
}

}  // namespace

int device_count() { return 0; }
DeviceInfo device_info(Device device) { refuse(device); }
DeviceScope::DeviceScope(Device) { refuse(); }
DeviceScope::~DeviceScope() = default;
CaptureTolerance::CaptureTolerance() { refuse(); }
CaptureTolerance::~CaptureTolerance() = default;
Tensor empty(std::initializer_list<int64_t>, DType, Device) { refuse(); }
Tensor zeros(std::initializer_list<int64_t>, DType, Device) { refuse(); }
Tensor empty_pinned(std::initializer_list<int64_t>, DType, Device) { refuse(); }
void copy(const TensorView&, const TensorView&, Stream&) { refuse(); }
Tensor copy_to(const TensorView&, Device) { refuse(); }
void synchronize(const Stream&) { refuse(); }

OwnedStream::OwnedStream(Device) { refuse(); }
OwnedStream::~OwnedStream() = default;
OwnedStream::OwnedStream(OwnedStream&&) noexcept = default;
OwnedStream& OwnedStream::operator=(OwnedStream&&) noexcept = default;

Event::Event(Device) { refuse(); }
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
void Event::record(Stream&) { refuse(); }
void Event::make_wait(Stream&) const { refuse(); }
void Event::synchronize() const { refuse(); }
float Event::milliseconds_since(const Event&) const { refuse(); }

bool is_recording(const Stream&) { refuse(); }
uint64_t recording_id(const Stream&) { refuse(); }

Graph::Graph(Stream&, const std::function<void()>&) { refuse(); }
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
void Graph::launch(Stream&) { refuse(); }

}  // namespace attend::cuda
