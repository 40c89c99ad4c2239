#include "attend/attention/forward_batch.h"

#include <algorithm>

namespace attend {

std::string_view to_string(ForwardMode mode) {
  switch (mode) {
    case ForwardMode::kExtend:
      return "extend";
    case ForwardMode::kDecode:
      return "decode";
    case ForwardMode::kMixed:
      return "mixed";
    case ForwardMode::kTargetVerify:
      return "target_verify";
    case ForwardMode::kDraftExtend:
      return "draft_extend";
    case ForwardMode::kIdle:
      return "idle";
  }
  return "unknown";
}

std::string_view to_string(Phase phase) { return phase == Phase::kPrefill ? "prefill" : "decode"; }

void PrefixInfo::add(int seqlen_kv, int seqlen_q) {
  const int64_t prefix_len = int64_t{seqlen_kv} - seqlen_q;
  num_kv_tokens += seqlen_kv;
  num_pairs += prefix_len * seqlen_q + int64_t{seqlen_q} * (seqlen_q + 1) / 2;
  max_prefix_len = std::max(max_prefix_len, static_cast<int>(prefix_len));
}

Phase to_phase(ForwardMode mode) {
  switch (mode) {
    case ForwardMode::kExtend:
    case ForwardMode::kMixed:
    case ForwardMode::kDraftExtend:
      return Phase::kPrefill;
    case ForwardMode::kDecode:
    case ForwardMode::kTargetVerify:
    case ForwardMode::kIdle:
      return Phase::kDecode;
  }
  return Phase::kPrefill;
}

}  // namespace attend
