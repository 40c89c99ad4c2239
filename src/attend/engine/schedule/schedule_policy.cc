#include "attend/engine/schedule/schedule_policy.h"

#include "attend/base/error.h"

namespace attend {

std::string_view to_string(SchedulePolicy policy) {
  switch (policy) {
    case SchedulePolicy::kFcfs:
      return "fcfs";
    case SchedulePolicy::kLpm:
      return "lpm";
    case SchedulePolicy::kLof:
      return "lof";
    case SchedulePolicy::kPriority:
      return "priority";
  }
  return "";
}

SchedulePolicy parse_schedule_policy(std::string_view name) {
  for (const auto policy :
       {SchedulePolicy::kFcfs, SchedulePolicy::kLpm, SchedulePolicy::kLof, SchedulePolicy::kPriority})
    if (name == to_string(policy)) return policy;
  fail(ErrorCode::kInvalidArgument, "schedule policy ", name, ": expected fcfs, lpm, lof or priority");
}

}  // namespace attend
