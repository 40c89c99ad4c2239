#include "tensors/workspaces.h"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <bit>

#include "attend/base/parallel.h"
#include "attend/tensor/cuda.h"
#include "attention/check_on_host.h"

namespace attend::python {
namespace {

bool same_geometry(const kernels::AttentionPlanLimits& a, const kernels::AttentionPlanLimits& b) {
  return a.num_q_heads == b.num_q_heads && a.num_kv_heads == b.num_kv_heads && a.head_dim_v == b.head_dim_v &&
         a.split_rule == b.split_rule && a.num_workers == b.num_workers && a.kv_dtype == b.kv_dtype;
}

bool holds(const Workspace& workspace, const kernels::AttentionPlanLimits& needed, int64_t num_new_tokens) {
  const kernels::AttentionPlanLimits& has = workspace.limits();
  return needed.max_reqs <= has.max_reqs && needed.max_tokens <= has.max_tokens &&
         needed.max_kv_tokens <= has.max_kv_tokens && num_new_tokens <= workspace.num_new_tokens();
}

int next_size(int64_t needed) {
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(needed, 64))));
}

// Releases torch's cached GPU memory. Returns false if torch is not loaded or is capturing a graph, which
// must not free memory.
bool torch_gives_memory_back() {
  namespace nb = nanobind;
  const nb::gil_scoped_acquire lock;
  const nb::object torch = nb::module_::import_("sys").attr("modules").attr("get")("torch");
  if (torch.is_none()) return false;
  const nb::object cuda = torch.attr("cuda");
  if (!nb::cast<bool>(cuda.attr("is_initialized")()) ||
      nb::cast<bool>(cuda.attr("is_current_stream_capturing")()))
    return false;
  cuda.attr("empty_cache")();
  return true;
}

// Calls make(), which allocates on a GPU. If memory is exhausted, first releases torch's cached memory, as
// torch does for its own tensors.
template <class Make>
auto allocated(const Make& make) {
  const cuda::RelaxedCapture tolerance;
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory || !torch_gives_memory_back()) throw;
  }
  return make();
}

}  // namespace

std::unique_ptr<Workspace> make_workspace(const kernels::AttentionPlanLimits& limits, int64_t num_new_tokens,
                                          Device device) {
  if (device.type == DeviceType::kCpu) return std::make_unique<Workspace>(limits, num_new_tokens, device);
  return allocated([&] { return std::make_unique<Workspace>(limits, num_new_tokens, device); });
}

Workspace& Workspaces::find_for(AttentionCall& call, const Stream& stream) {
  give_constants(call, stream.device);
  return find(call, stream);
}

Workspace& Workspaces::find(const AttentionCall& call, const Stream& stream) {
  const kernels::AttentionPlanLimits needed = make_limits(call, stream.device);
  kernels::AttentionPlanLimits limits = needed;
  int64_t num_new_tokens = call.num_new_tokens();
  // The last one is the largest.
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    Workspace& workspace = *entry->workspace;
    if (entry->stream.handle != stream.handle || entry->stream.device != stream.device ||
        !same_geometry(workspace.limits(), needed))
      continue;
    if (holds(workspace, needed, call.num_new_tokens())) return workspace;
    limits.max_reqs = std::max(needed.max_reqs, workspace.limits().max_reqs);
    limits.max_tokens = std::max(needed.max_tokens, workspace.limits().max_tokens);
    limits.max_kv_tokens = std::max(needed.max_kv_tokens, workspace.limits().max_kv_tokens);
    num_new_tokens = std::max(num_new_tokens, workspace.num_new_tokens());
    break;
  }
  limits.max_reqs = next_size(limits.max_reqs);
  limits.max_tokens = next_size(limits.max_tokens);
  entries_.push_back({stream, make_workspace(limits, next_size(num_new_tokens), stream.device)});
  return *entries_.back().workspace;
}

std::shared_ptr<Workspace> Workspaces::acquire(const kernels::AttentionPlanLimits& limits,
                                               int64_t num_new_tokens, const Stream& stream) {
  free_multi_stream_workspaces();
  const auto found = std::find_if(free_.begin(), free_.end(), [&](const Entry& entry) {
    return entry.stream.handle == stream.handle && entry.stream.device == stream.device &&
           same_geometry(entry.workspace->limits(), limits) &&
           holds(*entry.workspace, limits, num_new_tokens);
  });
  std::unique_ptr<Workspace> workspace;
  if (found != free_.end()) {
    workspace = std::move(found->workspace);
    free_.erase(found);
  } else {
    kernels::AttentionPlanLimits rounded = limits;
    rounded.max_reqs = next_size(limits.max_reqs);
    rounded.max_tokens = next_size(limits.max_tokens);
    workspace = make_workspace(rounded, next_size(num_new_tokens), stream.device);
  }
  return {workspace.release(), [this, stream](Workspace* returned) {
            free_.push_back({stream, std::unique_ptr<Workspace>(returned)});
          }};
}

void Workspaces::free_multi_stream_workspaces() {
  const auto kept = std::partition(free_.begin(), free_.end(),
                                   [](const Entry& entry) { return !entry.workspace->on_several_streams(); });
  if (kept == free_.end()) return;
  const cuda::RelaxedCapture tolerance;
  free_.erase(kept, free_.end());
}

int Workspaces::num_workers(int64_t most, Device device) {
  // A worker on a GPU is an SM, with up to two CTAs.
  constexpr int kCtasPerSm = 2;
  int64_t all = num_threads(), wanted = most;
  if (device.type == DeviceType::kCuda) {
    const auto index = static_cast<size_t>(device.index);
    if (num_sms_.size() <= index) num_sms_.resize(index + 1);
    if (num_sms_[index] == 0) {
      const cuda::RelaxedCapture tolerance;
      num_sms_[index] = cuda::device_info(device).num_sms;
    }
    all = num_sms_[index];
    wanted = std::max<int64_t>(1, most / kCtasPerSm);
  }
  // Workspaces are kept per number of workers, so it is rounded to few values.
  return wanted < all ? static_cast<int>(std::bit_floor(static_cast<uint64_t>(wanted))) : 0;
}

void Workspaces::give_constants(AttentionCall& call, Device device) {
  const kernels::BatchSource& source = call.source;
  // Requests that are split into two, or have keys that start anywhere, have no constant arrays.
  if (source.seqused_q != nullptr) return;
  if (call.cu_seqlen_q.empty())
    call.cu_seqlen_q = progression(0, call.max_seqlen_q, source.num_reqs + 1, device);
  if (source.leftpad != nullptr) return;
  const kernels::KvLocations& locations = source.locations;
  if (call.derives_first_key() && locations.rows == nullptr)
    call.kv.index.indptr = progression(0, locations.row_spacing, source.num_reqs + 1, device).data();
  const kernels::Lengths& cached = source.seqlen_cached;
  if (call.seqlen_kv.empty() && !call.appends() && cached.per_request == nullptr && cached.cu == nullptr &&
      cached.uniform == locations.capacity)
    call.seqlen_kv = progression(cached.uniform, 0, source.num_reqs, device);
}

View<const int32_t> Workspaces::progression(int32_t first, int32_t step, int count, Device device) {
  constexpr size_t kMost = 64;
  constexpr int32_t kDecodeSeqlenQ = 16;
  const auto beginning = [count](const Tensor& values) {
    return View<const int32_t>(values.as<int32_t>(), static_cast<size_t>(count));
  };
  for (const Progression& entry : progressions_)
    if (entry.first == first && entry.step == step && entry.values.view().device == device &&
        entry.values.shape(0) >= count)
      return beginning(entry.values);
  const bool is_decode_progression = first == 0 && step <= kDecodeSeqlenQ;
  if (progressions_.size() >= kMost && !is_decode_progression) return {};
  const Tensor values = Tensor::empty({next_size(count)}, DType::kI32);
  for (int32_t i = 0; i < values.shape(0); ++i)
    // Entries after `count` are only read by other calls, which have int indices.
    values.as<int32_t>()[i] = static_cast<int32_t>(first + int64_t{i} * step);
  progressions_.push_back({first, step, allocated([&] { return cuda::copy_to(values, device); })});
  return beginning(progressions_.back().values);
}

void run(AttentionCall& call, Workspaces& workspaces, Stream stream) {
  if (stream.device.type == DeviceType::kCpu) {
    check_on_host(call);
    Workspace workspace(make_limits(call, stream.device), call.num_new_tokens(), stream.device);
    return workspace.plan_and_attend(call, stream);
  }
  const cuda::DeviceScope scope(stream.device);
  workspaces.find_for(call, stream).plan_and_attend(call, stream);
}

void append(AttentionCall& call, Workspaces& workspaces, Stream stream) {
  if (stream.device.type == DeviceType::kCpu) {
    check_on_host(call);
    return Workspace(make_limits(call, stream.device), call.num_new_tokens(), stream.device)
        .place_keys(call, stream);
  }
  const cuda::DeviceScope scope(stream.device);
  workspaces.find_for(call, stream).place_keys(call, stream);
}

void run_planned(AttentionCall& call, Workspace& workspace, Workspaces& workspaces, Stream stream) {
  if (stream.device.type == DeviceType::kCpu) {
    check_on_host(call);
    workspace.place_keys(call, stream);
    return workspace.attend(call, stream);
  }
  const cuda::DeviceScope scope(stream.device);
  workspaces.give_constants(call, stream.device);
  workspace.place_keys(call, stream);
  workspace.attend(call, stream);
}

}  // namespace attend::python
