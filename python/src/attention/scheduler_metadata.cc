#include "attention/scheduler_metadata.h"

#include <string_view>

#include "attend/tensor/cuda.h"
#include "attention/check_on_host.h"
#include "tensors/arguments.h"

namespace attend::python {
namespace {

RequestLengths copied_lengths(const kernels::BatchSource& source) {
  RequestLengths lengths;
  for (int32_t r = 0; r < source.num_reqs; ++r) {
    lengths.queries.push_back(length_on_host(source.seqlen_q, r));
    lengths.cached.push_back(length_on_host(source.seqlen_cached, r));
    lengths.appended.push_back(length_on_host(source.seqlen_new, r));
    if (source.leftpad != nullptr) lengths.leftpad.push_back(source.leftpad[r]);
  }
  return lengths;
}

// Returns "[5, 6]", with at most the first values.
std::string listed(const std::vector<int32_t>& values) {
  constexpr size_t kMaxListed = 8;
  std::string text = "[";
  for (size_t i = 0; i < std::min(values.size(), kMaxListed); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + (values.size() > kMaxListed ? ", ...]" : "]");
}

void require_lengths(std::string_view what, const std::vector<int32_t>& planned,
                     const kernels::Lengths& lengths) {
  for (size_t r = 0; r < planned.size(); ++r) {
    const int32_t length = length_on_host(lengths, static_cast<int32_t>(r));
    if (length != planned[r])
      fail(ErrorCode::kInvalidArgument, "scheduler_metadata: made for ", what, " ", listed(planned),
           ", request ", r, " has ", length, ": call get_scheduler_metadata again");
  }
}

std::string_view python_bool(bool value) { return value ? "True" : "False"; }

}  // namespace

SchedulerMetadata plan_once(const AttentionCall& call, const kernels::AttentionPlanLimits& limits,
                            Device device, Stream stream) {
  SchedulerMetadata metadata{.device = device,
                             .num_reqs = call.source.num_reqs,
                             .num_tokens = limits.max_tokens,
                             .max_seqlen_q = call.max_seqlen_q,
                             .appended_are_ragged = call.source.seqlen_new.cu != nullptr,
                             .max_seqlen_appended = call.source.seqlen_new.uniform,
                             .num_appended = int64_t{call.source.num_reqs} * call.source.seqlen_new.uniform,
                             .has_leftpad = call.source.leftpad != nullptr,
                             .attention_mask = call.attention_mask};
  if (device.type == DeviceType::kCpu) {
    metadata.lengths = copied_lengths(call.source);
    metadata.workspace = make_workspace(limits, metadata.num_appended, device);
    metadata.workspace->plan(call, stream);
  } else {
    const cuda::DeviceScope scope(device);
    metadata.workspace = workspaces().acquire(limits, metadata.num_appended, stream);
    metadata.workspace->plan(call, stream);
  }
  return metadata;
}

bool lengths_differ(const SchedulerMetadata& metadata, const AttentionCall& call) {
  const bool plan_appends = metadata.appended_are_ragged || metadata.max_seqlen_appended > 0;
  return plan_appends != (call.num_new_tokens() > 0) ||
         metadata.has_leftpad != (call.source.leftpad != nullptr) || call.source.seqused_q != nullptr;
}

void require_planned_for(const SchedulerMetadata& metadata, const AttentionCall& call) {
  const kernels::AttentionPlanLimits needed = make_limits(call, call.q.device),
                                     &has = metadata.workspace->limits();
  require(metadata.device == call.q.device && metadata.num_reqs == call.source.num_reqs &&
              (metadata.tokens_are_bound ? metadata.num_tokens >= needed.max_tokens
                                         : metadata.num_tokens == needed.max_tokens) &&
              metadata.max_seqlen_q == call.max_seqlen_q && has.num_q_heads == needed.num_q_heads &&
              has.num_kv_heads == needed.num_kv_heads && has.head_dim_v == needed.head_dim_v &&
              has.split_rule == needed.split_rule && has.num_workers == needed.num_workers,
          "scheduler_metadata for ", metadata.num_reqs, " requests, ", metadata.num_tokens, " queries (",
          metadata.max_seqlen_q, " per request at most), ", has.num_q_heads, "/", has.num_kv_heads,
          " heads, head_dim_v ", has.head_dim_v, " on ", metadata.device, ": the call has ",
          call.source.num_reqs, ", ", needed.max_tokens, " (", call.max_seqlen_q, "), ", needed.num_q_heads,
          "/", needed.num_kv_heads, ", ", needed.head_dim_v, " on ", call.q.device,
          "; num_splits must also be equal");
  // A plan without window and chunk also serves layers with one, which skip part of its work.
  const kernels::AttentionMask &planned = metadata.attention_mask,
                               unrestricted{.causal = call.attention_mask.causal,
                                            .window_right = call.attention_mask.window_right};
  require(planned == call.attention_mask || planned == unrestricted,
          "scheduler_metadata: made for causal=", python_bool(planned.causal), ", a window_size of ",
          planned.window_left, " to the left, attention_chunk ", planned.chunk, ", the call has ",
          python_bool(call.attention_mask.causal), ", ", call.attention_mask.window_left, ", ",
          call.attention_mask.chunk, ": expected the same, or a plan without window and chunk");
  const kernels::Lengths& appended = call.source.seqlen_new;
  const bool compared_by_request = metadata.device.type == DeviceType::kCpu;
  require(compared_by_request || metadata.appended_are_ragged || appended.cu != nullptr ||
              metadata.max_seqlen_appended == appended.uniform,
          "scheduler_metadata: made for max_seqlen_k_new ", metadata.max_seqlen_appended,
          ", the call appends ", appended.uniform, " keys: call get_scheduler_metadata again");
  if (compared_by_request) {
    require_lengths("queries", metadata.lengths.queries, call.source.seqlen_q);
    require_lengths("cache_seqlens", metadata.lengths.cached, call.source.seqlen_cached);
    require_lengths("keys to append", metadata.lengths.appended, appended);
    require_lengths("cache_leftpad", metadata.lengths.leftpad, {.per_request = call.source.leftpad});
  }
  require(metadata.num_appended >= call.num_new_tokens(), "scheduler_metadata: made for ",
          metadata.num_appended, " keys to append, there are ", call.num_new_tokens(),
          ": expected max_seqlen_k_new to be the maximum of all requests");
}

}  // namespace attend::python
