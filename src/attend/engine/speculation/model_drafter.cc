#include "attend/engine/speculation/model_drafter.h"

#include <algorithm>
#include <chrono>

#include "attend/base/error.h"
#include "attend/kernels/sampling/sampling.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

// A longer part of a request is computed by the prefill backend.
constexpr int kMaxVerifiedTokens = 16;

}  // namespace

ModelDrafter::ModelDrafter(Executor& executor, DraftGroup& group, int vocab_size,
                           const SpeculativeOptions& options)
    : executor_(executor),
      group_(group),
      vocab_size_(std::min(vocab_size, executor.spec().vocab_size)),
      max_positions_(executor.spec().max_context_len()),
      max_reqs_(executor.limits().max_draft_reqs),
      max_rows_(executor.limits().max_logit_rows()),
      claims_(static_cast<size_t>(group.num_pages())) {
  tokens_ = executor.on_gpu()
                ? cuda::empty_pinned({options.num_steps, max_rows_}, DType::kI32, executor.device())
                : Tensor::empty({options.num_steps, max_rows_}, DType::kI32);
}

void ModelDrafter::draft(const ScheduledStep& step) {
  device_seconds_ = 0.0;
  ++round_;
  begin_batch(ForwardMode::kExtend);
  room_ = executor_.limits().max_tokens;
  chains_.clear();
  followers_.clear();
  int num_left = step.max_draft_tokens, longest = 0;
  for (const ScheduledRequest& part : step.requests) {
    Request& request = *part.request;
    // The last drafted token is not computed.
    const int length = std::min({part.num_draft_slots, num_left, max_positions_ - request.num_tokens() + 1});
    if (length <= 0 || !catch_up(request, request.num_tokens(), true)) continue;
    chains_.push_back({.request = &request, .length = length, .row = static_cast<int>(chains_.size())});
    num_left -= length;
    longest = std::max(longest, length);
  }
  // Otherwise the last chunk would be followed by rounds without drafts.
  if (std::ssize(step.requests) <= max_reqs_)
    for (const ScheduledRequest& part : step.requests)
      if (!part.request->decoding() && !part.request->pools)
        catch_up(*part.request, std::min(part.request->num_computed, max_positions_), false);
  if (batch_.requests.empty()) return;

  const auto begin = std::chrono::steady_clock::now();
  batch_.mode = first_mode();
  launch(0);
  for (int idx = 1; idx < longest; ++idx) {
    build_decode(idx);
    launch(idx);
  }
  if (executor_.on_gpu()) cuda::synchronize(executor_.stream());
  device_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  collect();
}

void ModelDrafter::begin_batch(ForwardMode mode) {
  batch_.mode = mode;
  batch_.requests.clear();
  batch_.token_ids.clear();
  batch_.late_token_ids.clear();
  batch_.rules.clear();
  // claim_pages() excludes keys that another request computes in the same launch.
  batch_.prefix_ready = true;
}

bool ModelDrafter::catch_up(const Request& request, int num_tokens, bool predicts) {
  // The target has no K/V of skipped tokens either.
  const int begin = std::min(std::max(group_.num_tokens(request.row), request.num_skipped),
                             num_tokens - (predicts ? 1 : 0));
  const int end = std::min(num_tokens, begin + room_);
  if (begin >= end || !claim_pages(request.row, begin, end)) return false;
  const auto tokens =
      std::span(request.tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  // The vocabularies may differ by padding.
  if (std::ranges::any_of(tokens, [&](int32_t id) { return id >= vocab_size_; })) return false;
  const bool has_logits = predicts && end == num_tokens;
  batch_.token_ids.insert(batch_.token_ids.end(), tokens.begin(), tokens.end());
  batch_.requests.push_back({.row = request.row,
                             .num_computed = begin,
                             .num_new = end - begin,
                             .prompt_len = request.num_prompt,
                             .num_logit_rows = has_logits ? 1 : 0});
  if (has_logits)
    batch_.rules.push_back({.temperature = 0.0f});
  else
    followers_.push_back({request.row, end});
  room_ -= end - begin;
  return has_logits;
}

bool ModelDrafter::claim_pages(RequestRow row, int begin, int end) {
  const int page_size = group_.page_size();
  const auto claim = [&](int position) -> int64_t& {
    return claims_[static_cast<size_t>(group_.find_page(row, position).value)];
  };
  const int first = begin / page_size * page_size;
  for (int position = first; position < end; position += page_size)
    if (claim(position) == round_) return false;
  for (int position = first; position < end; position += page_size) claim(position) = round_;
  return true;
}

ForwardMode ModelDrafter::first_mode() const {
  int most = 0;
  for (const ExecutorRequest& request : batch_.requests) most = std::max(most, request.num_new);
  if (most == 1 && followers_.empty()) return ForwardMode::kDecode;
  return most <= kMaxVerifiedTokens ? ForwardMode::kTargetVerify : ForwardMode::kExtend;
}

void ModelDrafter::build_decode(int idx) {
  begin_batch(ForwardMode::kDecode);
  int num_rows = 0, run_begin = 0;  // run: chains with adjacent rows in both launches
  const auto end_run = [&](int end_row) {
    const int count = num_rows - run_begin;
    if (count > 0)
      batch_.late_token_ids.push_back({run_begin, predicted(idx - 1).slice(0, end_row - count, end_row)});
    run_begin = num_rows;
  };
  int end_row = 0;  // of the run, in the previous launch
  for (Chain& chain : chains_) {
    if (chain.length <= idx) continue;
    if (chain.row != end_row) end_run(end_row);
    end_row = chain.row + 1;
    chain.row = num_rows++;
    batch_.token_ids.push_back(0);
    batch_.requests.push_back({.row = chain.request->row,
                               .num_computed = chain.request->num_tokens() + idx - 1,
                               .num_new = 1,
                               .prompt_len = chain.request->num_prompt,
                               .num_logit_rows = 1});
    batch_.rules.push_back({.temperature = 0.0f});
  }
  end_run(end_row);
}

void ModelDrafter::launch(int idx) {
  const ExecutorOutput output = executor_.launch(batch_);
  const auto num_rows = std::ssize(batch_.rules);
  if (num_rows == 0) return;
  kernels::argmax(output.logits.slice(0, 0, num_rows).slice(1, 0, vocab_size_),
                  predicted(idx).span<int32_t>().first(static_cast<size_t>(num_rows)), executor_.stream());
}

void ModelDrafter::collect() {
  for (const Follower& follower : followers_)
    group_.set_num_tokens(follower.row, follower.num_tokens, follower.num_tokens);
  std::vector<int> next_row;
  const View<const int32_t> all = tokens_.span<int32_t>();
  int longest = 0;
  for (const Chain& chain : chains_) longest = std::max(longest, chain.length);
  for (int idx = 0; idx < longest; ++idx) {
    size_t row = static_cast<size_t>(idx * max_rows_);
    for (const Chain& chain : chains_) {
      if (chain.length <= idx) continue;
      const int32_t id = all[row++];
      std::vector<int32_t>& tokens = chain.request->draft.tokens;
      // kernels::kNoToken: logits without a number end the draft.
      if (id >= 0 && std::ssize(tokens) == idx) tokens.push_back(id);
    }
  }
  for (const Chain& chain : chains_) {
    const int num_known = chain.request->num_tokens();
    const auto num_predicted = static_cast<int>(chain.request->draft.tokens.size());
    group_.set_num_tokens(chain.request->row, num_known + std::min(num_predicted, chain.length - 1),
                          num_known);
  }
}

}  // namespace attend
