// Times the scheduler's part of a step on one thread: 256 requests decode while many wait for room in the
// pool. No model runs; tokens are artificial. Prints the median and the maximum of 1,000 steps, and the cost
// per request of a prefix cache without hits, from submission to the end.
//
//   scheduler_bench [waiting requests]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "attend/engine/schedule/scheduler.h"

namespace {

using namespace attend;

double microseconds_now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

struct Load {
  SchedulePolicy policy = SchedulePolicy::kFcfs;
  std::optional<EvictionPolicy> caching = EvictionPolicy::kLru;
  int page_size = 64;
  int num_shared = 256;  // first tokens of a prompt, which all requests share
  int num_waiting = 0;
};

constexpr int kRunning = 256, kPrompt = 512, kAnswer = 64, kSteps = 1000, kWarmUp = 200;

// Times of steps after the warm-up.
struct Times {
  std::vector<double> microseconds;
  int num_finished = 0;
  int num_running = 0;  // in the last step
};

Times time_steps(const Load& load) {
  const BatchLimits limits{.max_reqs = kRunning, .max_tokens = 8192, .max_kv_tokens = 1 << 30};
  ReqToTokenPool rows(kRunning, 2048);
  const auto slots = make_allocator(load.page_size, kRunning * (kPrompt + kAnswer) / load.page_size);
  RequestMemory memory(limits.max_kv_tokens, rows, *slots, load.caching);
  Scheduler scheduler(limits, memory, {.policy = load.policy});
  RequestId id = 0;
  const auto submit = [&] {
    auto request = std::make_unique<Request>();
    request->id = id++;
    request->num_prompt = kPrompt;
    request->priority = static_cast<int>(id % 7);
    request->params.max_new_tokens = kAnswer;
    for (int p = 0; p < kPrompt; ++p)
      request->tokens.push_back(p < load.num_shared ? p : static_cast<int32_t>(id * 31 + p) % 50'000);
    request->tokens.reserve(kPrompt + kAnswer);
    scheduler.submit(std::move(request));
  };
  for (int i = 0; i < load.num_waiting + kRunning; ++i) submit();
  Times times;
  std::vector<Request*> sampling;
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    while (scheduler.num_waiting() < load.num_waiting) submit();
    int num_finished = 0;
    const double start = microseconds_now();
    const ScheduledStep& scheduled = scheduler.schedule();
    sampling.clear();
    for (const ScheduledRequest& part : scheduled.requests)
      if (part.samples()) sampling.push_back(part.request);
    scheduler.advance();
    for (Request* request : sampling) {
      request->tokens.push_back(7);
      if (request->num_output() < kAnswer) continue;
      scheduler.finish(request->id);
      ++num_finished;
    }
    if (step < kWarmUp) continue;
    times.microseconds.push_back(microseconds_now() - start);
    times.num_finished += num_finished;
  }
  times.num_running = scheduler.num_running();
  return times;
}

void time_policy(SchedulePolicy policy, int num_waiting) {
  Times times = time_steps({.policy = policy, .num_waiting = num_waiting});
  std::sort(times.microseconds.begin(), times.microseconds.end());
  std::printf("%-8s %6d wait, %3d run: median %7.1f us, slowest %7.1f us per step\n",
              to_string(policy).data(), num_waiting, times.num_running,
              times.microseconds[times.microseconds.size() / 2], times.microseconds.back());
}

double microseconds_a_request(const Load& load) {
  const Times times = time_steps(load);
  return std::accumulate(times.microseconds.begin(), times.microseconds.end(), 0.0) / times.num_finished;
}

void time_without_hits(int page_size) {
  Load load{.page_size = page_size, .num_shared = 0, .num_waiting = 64};
  const double cached = microseconds_a_request(load);
  load.caching.reset();
  const double plain = microseconds_a_request(load);
  std::printf("page %3d: %.1f us per request of %d + %d tokens, %.1f us of them for a cache without hits\n",
              page_size, cached, kPrompt, kAnswer, cached - plain);
}

}  // namespace

int main(int argc, char** argv) {
  const int num_waiting = argc > 1 ? std::atoi(argv[1]) : 10'000;
  for (const auto policy : {SchedulePolicy::kFcfs, SchedulePolicy::kLpm, SchedulePolicy::kPriority})
    for (const int waiting : {100, num_waiting}) time_policy(policy, waiting);
  for (const int page_size : {1, 16, 64}) time_without_hits(page_size);
}
