#include "attend/attention/forward_batch.h"

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

Phase phase_of(ForwardMode mode) {
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
