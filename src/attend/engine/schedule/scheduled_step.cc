#include "attend/engine/schedule/scheduled_step.h"

#include <algorithm>
#include <numeric>

namespace attend {

int ScheduledStep::num_live() const {
  return static_cast<int>(
      std::ranges::count_if(requests, [](const ScheduledRequest& part) { return part.request != nullptr; }));
}

int ScheduledStep::num_draft() const {
  return std::accumulate(requests.begin(), requests.end(), 0,
                         [](int sum, const ScheduledRequest& part) { return sum + part.num_draft; });
}

int ScheduledStep::num_rejected() const {
  return std::accumulate(requests.begin(), requests.end(), 0,
                         [](int sum, const ScheduledRequest& part) { return sum + part.num_rejected(); });
}

ForwardMode ScheduledStep::find_mode() const {
  const auto num_decoding =
      std::ranges::count_if(requests, [](const ScheduledRequest& part) { return part.request->decoding(); });
  if (requests.empty()) return ForwardMode::kIdle;
  if (num_decoding == 0) return ForwardMode::kExtend;
  if (num_decoding < std::ssize(requests)) return ForwardMode::kMixed;
  return num_tokens > std::ssize(requests) ? ForwardMode::kTargetVerify : ForwardMode::kDecode;
}

}  // namespace attend
