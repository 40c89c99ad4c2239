// SchedulePolicy: whose turn it is among requests that wait.
#pragma once

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)
namespace attend {

enum class SchedulePolicy : uint8_t {
  kFcfs,      // first come, first served
  kLpm,       // the longest cached prefix first, while not too many wait
  kLof,       // the longest output first, as max_new_tokens has it: many at once end soonest so
  kPriority,  // the highest Request::priority first
};
std::string_view to_string(SchedulePolicy policy);
// Throws Error(kInvalidArgument) for a name other than fcfs, lpm, lof and priority.
SchedulePolicy parse_schedule_policy(std::string_view name);

struct ScheduleOptions {
  SchedulePolicy policy = SchedulePolicy::kFcfs;
  double conservativeness = 1.0;  // more plans for longer answers: fewer requests run, fewer are preempted
  // 0: no limit. A request that comes while so many completions wait is too much, with all of its own.
  int max_queued_requests = 0;
};

}  // namespace attend
#pragma GCC visibility pop
