#include "attend/engine/speculation/model_drafter.h"

#include <algorithm>
#include <chrono>

#include "attend/base/error.h"
#include "attend/kernels/sampling/logprobs.h"
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
      shift_(executor.spec().draft ? 1 : 0),
      vocab_size_(std::min(vocab_size, executor.spec().vocab_size)),
      max_positions_(executor.spec().max_context_len()),
      max_reqs_(executor.limits().max_draft_reqs),
      max_rows_(executor.limits().max_logit_rows()),
      num_steps_(options.num_steps),
      topk_(options.eagle_topk),
      tree_slots_(num_tree_slots(options)),
      max_tree_tokens_(options.num_draft_tokens - 1),
      claims_(static_cast<size_t>(group.num_pages())) {
  const auto on_host = [&](std::initializer_list<int64_t> shape, DType dtype) {
    return executor.on_gpu() ? cuda::empty_pinned(shape, dtype, executor.device())
                             : Tensor::empty(shape, dtype);
  };
  tokens_ = on_host({longest_path(options), max_rows_}, DType::kI32);
  if (tree_slots_ == 0) return;
  num_top_ = on_host({max_rows_}, DType::kI32);
  log_sums_ = on_host({max_rows_}, DType::kF32);
  static_assert(sizeof(TokenLogprob) == sizeof(int64_t));
  tops_ = on_host({max_rows_ * kernels::kMaxTopLogprobs}, DType::kI64);
}

void ModelDrafter::observe(const ScheduledStep& step, const TensorView& hidden_states) {
  computed_.clear();
  if (!reads_hidden_states()) return;
  hidden_ = hidden_states;
  int first_hidden = 0;
  for (const ScheduledRequest& part : step.requests) {
    if (const Request* const request = part.request; request != nullptr) {
      const int num_known = part.num_new - part.num_draft, begin = request->num_computed;
      Computed& computed = computed_.emplace_back();
      computed = {.request = request,
                  .row = request->row,
                  .begin = begin,
                  .num_kept = num_known + part.num_kept,
                  .end = begin + num_known + part.num_accepted,
                  .first_hidden = first_hidden,
                  .other_hidden = {}};
      for (int i = part.num_kept; i < part.num_accepted; ++i)
        computed.other_hidden.push_back(first_hidden + num_known +
                                        request->draft.accepted[static_cast<size_t>(i)]);
    }
    first_hidden += part.num_new;
  }
}

void ModelDrafter::end(const Request& request) {
  std::erase_if(computed_, [&](const Computed& computed) { return computed.request == &request; });
}

void ModelDrafter::draft(const ScheduledStep& step) {
  device_seconds_ = 0.0;
  draws_trees_ = step.trees;
  ++round_;
  begin_batch(ForwardMode::kExtend);
  room_ = executor_.limits().max_tokens;
  chains_.clear();
  followers_.clear();
  if (reads_hidden_states())
    add_computed(step);
  else
    add_requests(step);
  computed_.clear();
  if (batch_.requests.empty()) return;

  const auto begin = std::chrono::steady_clock::now();
  batch_.mode = first_mode();
  launch();
  if (draws_trees_)
    draw_trees();
  else
    draw_chains();
  if (executor_.on_gpu()) cuda::synchronize(executor_.stream());
  device_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const Follower& follower : followers_)
    group_.set_num_tokens(follower.row, follower.num_tokens, follower.num_tokens);
  if (draws_trees_)
    collect_trees();
  else
    collect_chains();
}

void ModelDrafter::draw_chains() {
  predict(0);
  for (int idx = 1; idx < longest(); ++idx) {
    build_decode(idx);
    launch();
    predict(idx);
  }
}

int ModelDrafter::longest() const {
  int longest = 0;
  for (const Chain& chain : chains_) longest = std::max(longest, chain.length);
  return longest;
}

// The last drafted token is not computed.
int ModelDrafter::chain_length(const ScheduledRequest& part, int num_left) const {
  return std::min(
      {part.num_draft_slots, part.draft_depth, num_left, max_positions_ - num_known(*part.request) + 1});
}

void ModelDrafter::add_chain(const ScheduledRequest& part, int length, int& num_left) {
  const bool is_tree = has_tree(part, num_left);
  const int num_tokens = is_tree ? max_tree_tokens_ : length;
  num_left -= num_tokens;
  chains_.push_back({.request = part.request,
                     .length = length,
                     .num_tokens = num_tokens,
                     .topk = is_tree ? topk_ : 1,
                     .row = static_cast<int>(chains_.size()),
                     .token = batch_.num_tokens() - 1});
}

void ModelDrafter::add_requests(const ScheduledStep& step) {
  int num_left = step.max_draft_tokens;
  for (const ScheduledRequest& part : step.requests) {
    const int length = chain_length(part, num_left);
    if (length <= 0 || !catch_up(*part.request, num_known(*part.request), true)) continue;
    add_chain(part, length, num_left);
  }
  // Otherwise the last chunk would be followed by rounds without drafts.
  if (std::ssize(step.requests) > max_reqs_) return;
  for (const ScheduledRequest& part : step.requests)
    if (!part.request->decoding() && !part.request->pools)
      catch_up(*part.request, std::min(part.request->num_computed, max_positions_), false);
}

void ModelDrafter::add_computed(const ScheduledStep& step) {
  int num_left = step.max_draft_tokens;
  for (const Computed& computed : computed_) {
    const auto part = std::ranges::find(step.requests, computed.request, &ScheduledRequest::request);
    const bool drafts = part != step.requests.end() && computed.request->decoding();
    const int length = drafts ? chain_length(*part, num_left) : 0;
    if (!catch_up(computed, length > 0)) continue;
    add_chain(*part, length, num_left);
  }
}

void ModelDrafter::begin_batch(ForwardMode mode) {
  batch_.mode = mode;
  batch_.requests.clear();
  batch_.token_ids.clear();
  batch_.late_token_ids.clear();
  batch_.tree_parents.clear();
  batch_.rules.clear();
  batch_.hidden_rows.clear();
  batch_.hidden_source = HiddenSource::kTarget;
  // claim_pages() excludes keys that another request computes in the same launch.
  batch_.prefix_ready = true;
}

bool ModelDrafter::catch_up(const Request& request, int num_positions, bool predicts) {
  // The target has no K/V of skipped tokens either.
  const int begin = std::min(std::max(group_.num_tokens(request.row), request.num_skipped),
                             num_positions - (predicts ? 1 : 0));
  const int end = std::min(num_positions, begin + room_);
  if (begin >= end || !claim_pages(request.row, begin, end)) return false;
  const auto tokens =
      std::span(request.tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  // The vocabularies may differ by padding.
  if (std::ranges::any_of(tokens, [&](int32_t id) { return id >= vocab_size_; })) return false;
  const bool has_logits = predicts && end == num_positions;
  add_positions(request, begin, end, has_logits);
  return has_logits;
}

bool ModelDrafter::catch_up(const Computed& computed, bool predicts) {
  const Request& request = *computed.request;
  // Preempted, and possibly admitted again.
  if (request.row != computed.row || request.num_computed != computed.begin + computed.num_kept) return false;
  const int end = std::min(computed.end, max_positions_);
  int begin = std::max(group_.num_tokens(request.row), request.num_skipped);
  // Pages that the launch computes for other requests.
  for (const int page_size = group_.page_size(); begin < end && is_claimed(request.row, begin);) {
    begin = std::min(end, (begin / page_size + 1) * page_size);
    batch_.prefix_ready = false;
  }
  if (begin < computed.begin) group_.set_lost(request.row);
  if (begin < computed.begin || begin >= end || !claim_pages(request.row, begin, end)) return false;
  add_hidden_rows(computed, begin, end);
  add_positions(request, begin, end, predicts && end == computed.end);
  return predicts && end == computed.end;
}

void ModelDrafter::add_hidden_rows(const Computed& computed, int begin, int end) {
  const int first_token = batch_.num_tokens();
  const auto add = [&](int position, int row, int count) {
    batch_.hidden_rows.push_back(
        {.first_token = first_token + position - begin, .rows = hidden_.slice(0, row, row + count)});
  };
  const int end_kept = computed.begin + computed.num_kept;
  if (begin < end_kept)
    add(begin, computed.first_hidden + begin - computed.begin, std::min(end, end_kept) - begin);
  for (int position = std::max(begin, end_kept); position < end; ++position)
    add(position, computed.other_hidden[static_cast<size_t>(position - end_kept)], 1);
}

void ModelDrafter::add_positions(const Request& request, int begin, int end, bool predicts) {
  const auto tokens = request.tokens.begin() + shift_;
  batch_.token_ids.insert(batch_.token_ids.end(), tokens + begin, tokens + end);
  batch_.requests.push_back({.row = request.row,
                             .num_computed = begin,
                             .num_new = end - begin,
                             .prompt_len = request.num_prompt,
                             .num_logit_rows = predicts ? 1 : 0});
  if (predicts)
    batch_.rules.push_back({.temperature = 0.0f});
  else
    followers_.push_back({request.row, end});
  room_ -= end - begin;
}

bool ModelDrafter::is_claimed(RequestRow row, int position) const {
  return claims_[static_cast<size_t>(group_.find_page(row, position).value)] == round_;
}

bool ModelDrafter::claim_pages(RequestRow row, int begin, int end) {
  const int page_size = group_.page_size();
  const int first = begin / page_size * page_size;
  for (int position = first; position < end; position += page_size)
    if (is_claimed(row, position)) return false;
  for (int position = first; position < end; position += page_size)
    claims_[static_cast<size_t>(group_.find_page(row, position).value)] = round_;
  return true;
}

ForwardMode ModelDrafter::first_mode() const {
  int most = 0;
  for (const ExecutorRequest& request : batch_.requests) most = std::max(most, request.num_new);
  // Graphs of decode steps do not read the target's hidden states.
  if (most == 1 && followers_.empty() && shift_ == 0) return ForwardMode::kDecode;
  return most <= kMaxVerifiedTokens ? ForwardMode::kTargetVerify : ForwardMode::kExtend;
}

void ModelDrafter::build_decode(int idx) {
  begin_batch(ForwardMode::kDecode);
  // Adjacent rows of the launch before are copied together.
  Run ids, hidden;
  const auto end_ids = [&] {
    if (ids.count > 0)
      batch_.late_token_ids.push_back({ids.to, predicted(idx - 1).slice(0, ids.from, ids.end())});
  };
  const auto end_hidden = [&] {
    if (hidden.count > 0)
      batch_.hidden_rows.push_back({hidden.to, output_.hidden_states.slice(0, hidden.from, hidden.end())});
  };
  for (Chain& chain : chains_) {
    if (chain.length <= idx) continue;
    const int to = batch_.num_tokens();
    if (!ids.add(chain.row)) {
      end_ids();
      ids = {.from = chain.row, .to = to, .count = 1};
    }
    if (shift_ > 0 && !hidden.add(chain.token)) {
      end_hidden();
      hidden = {.from = chain.token, .to = to, .count = 1};
    }
    chain.row = chain.token = to;
    batch_.token_ids.push_back(0);
    batch_.requests.push_back({.row = chain.request->row,
                               .num_computed = num_known(*chain.request) + idx - 1,
                               .num_new = 1,
                               .prompt_len = chain.request->num_prompt,
                               .num_logit_rows = 1});
    batch_.rules.push_back({.temperature = 0.0f});
  }
  end_ids();
  end_hidden();
  batch_.hidden_source = HiddenSource::kDraft;
}

void ModelDrafter::launch() {
  batch_.hidden_states = shift_ > 0;
  output_ = executor_.launch(batch_);
}

void ModelDrafter::predict(int idx) {
  const auto num_rows = std::ssize(batch_.rules);
  if (num_rows == 0) return;
  const View<int32_t> ids = predicted(idx).span<int32_t>().first(static_cast<size_t>(num_rows));
  const View<const int32_t> tokens = executor_.head_tokens();
  TensorView logits = output_.logits.slice(0, 0, num_rows);
  if (tokens.empty()) logits = logits.slice(1, 0, vocab_size_);
  kernels::argmax(logits, ids, executor_.stream());
  if (!tokens.empty()) kernels::map_ids(tokens, ids, executor_.stream());
}

void ModelDrafter::collect_chains() {
  const View<const int32_t> all = tokens_.span<int32_t>();
  const int num_launches = longest();
  for (int idx = 0; idx < num_launches; ++idx) {
    auto row = static_cast<size_t>(idx * max_rows_);
    for (const Chain& chain : chains_) {
      if (chain.length <= idx) continue;
      const int32_t id = all[row++];
      std::vector<int32_t>& tokens = chain.request->draft.tokens;
      // kernels::kNoToken: logits without a number end the draft.
      if (id >= 0 && std::ssize(tokens) == idx) tokens.push_back(id);
    }
  }
  for (const Chain& chain : chains_) {
    const int known = num_known(*chain.request);
    const auto num_predicted = static_cast<int>(chain.request->draft.tokens.size());
    // A head computes drafted tokens again, from the target's hidden states.
    const int num_drafted = shift_ > 0 ? 0 : std::min(num_predicted, chain.length - 1);
    group_.set_num_tokens(chain.request->row, known + num_drafted, known);
  }
}

}  // namespace attend
