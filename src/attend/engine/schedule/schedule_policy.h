// SchedulePolicy: order in which waiting requests are admitted.
#pragma once

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)
namespace attend {

enum class SchedulePolicy : uint8_t {
  kFcfs,      // first come, first served
  kLpm,       // longest cached prefix first, unless too many requests wait
  kLof,       // longest max_new_tokens first: shortest total time of a batch of requests
  kPriority,  // highest Request::priority first
};
std::string_view to_string(SchedulePolicy policy);
// Throws Error(kInvalidArgument) for a name other than fcfs, lpm, lof and priority.
SchedulePolicy parse_schedule_policy(std::string_view name);

struct ScheduleOptions {
  SchedulePolicy policy = SchedulePolicy::kFcfs;
  double conservativeness =
      1.0;  // higher values reserve more output: fewer requests run, fewer are preempted
  // Maximum number of waiting completions, 0 without a limit. A new request that exceeds it is dropped with
  // all of its completions.
  int max_queued_requests = 0;
};

}  // namespace attend
#pragma GCC visibility pop
