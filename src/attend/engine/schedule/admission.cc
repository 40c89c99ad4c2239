#include "attend/engine/schedule/admission.h"

#include <algorithm>

#include "attend/base/math.h"

namespace attend {
namespace {

constexpr double kInitialRatio = 0.7, kSmallestShare = 0.14;
constexpr int kStepsToSmallest = 600;
// Number of tokens that each request should generate between two preemptions.
constexpr int kStepsBetweenPreemptions = 20;
constexpr int kMaxPlannedTokens = 4096;

}  // namespace

int num_planned_tokens(const Request& request) {
  return std::clamp(request.params.max_new_tokens - request.num_output(), 0, kMaxPlannedTokens);
}

bool is_preempted_before(const Request& a, const Request& b) {
  if (a.num_output() != b.num_output()) return a.num_output() < b.num_output();
  return a.num_prompt > b.num_prompt;
}

NewTokenRatio::NewTokenRatio(double conservativeness)
    : initial_(std::min(1.0, kInitialRatio * conservativeness)),
      smallest_(kSmallestShare * initial_),
      value_(initial_) {}

void NewTokenRatio::after_decode() {
  value_ = std::max(smallest_, value_ - (initial_ - smallest_) / kStepsToSmallest);
}

void NewTokenRatio::after_preemption(int64_t num_output, int64_t max_new_tokens, int num_running) {
  const auto needed = static_cast<double>(num_output + int64_t{kStepsBetweenPreemptions} * num_running);
  value_ = std::min(1.0, needed / static_cast<double>(max_new_tokens + 1));
}

void AdmissionBudget::charge(int num_prompt_tokens, int num_planned) {
  left_ -= static_cast<double>(round_up(num_prompt_tokens, unit_)) + unit_ + num_planned;
}

namespace {

// Returns `end`, or the begin of the item that it divides.
int end_before_item(const PromptChunk& prompt, int end) {
  for (const ImageRun& item : prompt.items)
    if (item.first_token < end && end < item.end_token()) return std::max(prompt.begin, item.first_token);
  return end;
}

}  // namespace

int chunk_end(const PromptChunk& prompt) {
  const int room_end = prompt.begin + std::max(0, prompt.room), limit = std::min(room_end, prompt.ready_end);
  if (prompt.prompt_end <= limit) return prompt.prompt_end;
  if (prompt.is_whole) return prompt.begin;
  // The grid may end within an item that fits as a whole.
  const int grid_end = end_before_item(prompt, std::max(prompt.begin, limit / prompt.grid * prompt.grid));
  if (grid_end > prompt.begin) return grid_end;
  // A chunk that ends at ready_end would leave the grid although a later step continues on it.
  return prompt.is_first && limit == room_end ? end_before_item(prompt, limit) : prompt.begin;
}

}  // namespace attend
