#include "attend/engine/step/sampler.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {
namespace {

template <class Is>
bool any(std::span<const SampledRow> sampled, const Is& is) {
  return std::ranges::any_of(sampled, [&](const SampledRow& row) { return is(*row.request); });
}

int num_top_logprobs(const Request& request) { return request.params.logprobs.value_or(-1); }

}  // namespace

Sampler::Sampler(int vocab_size, Device device)
    : num_mask_words_(static_cast<size_t>(kernels::mask_words(vocab_size))),
      cu_edits_(StepMemory::kUploaded, device),
      mask_row_idx_(StepMemory::kUploaded, device),
      num_top_(StepMemory::kUploaded, device),
      scored_(StepMemory::kUploaded, device),
      edits_(StepMemory::kUploaded, device),
      before_(StepMemory::kDevice, device),
      masks_(StepMemory::kUploaded, device),
      log_sums_(StepMemory::kDevice, device),
      logprobs_(StepMemory::kResult, device),
      tops_(StepMemory::kResult, device) {}

void Sampler::sample(const TensorView& logits, View<const kernels::SamplingRule> rules,
                     std::span<const SampledRow> sampled, View<int32_t> tokens, Stream& stream) {
  const bool edited =
      any(sampled, [](const Request& request) { return request.logits_processor || request.mask; });
  const bool scored = any(sampled, [](const Request& request) { return num_top_logprobs(request) >= 0; });
  const TensorView rows = logits.slice(0, 0, std::ssize(sampled));
  num_top_.resize(scored ? sampled.size() : 0);
  mask_row_idx_.resize(0);
  if (scored) {
    std::ranges::transform(sampled, num_top_.host().begin(),
                           [](const SampledRow& row) { return num_top_logprobs(*row.request); });
    queue_tops(rows, stream);
  }
  if (edited || scored) {
    gather_masks(sampled);
    gather_edits(sampled);
    cu_edits_.upload(stream);
    edits_.upload(stream);
    mask_row_idx_.upload(stream);
    masks_.upload(stream);
  }
  if (edited) kernels::edit_logits(rows, edits(), stream);
  kernels::sample(logits, rules, tokens, stream);
  if (scored)
    kernels::token_logprobs(rows, edits(), tokens.first(sampled.size()), log_sums_.on_device(),
                            logprobs_.on_device(), stream);
}

bool Sampler::allowed(size_t row, int32_t token_id) const {
  const View<const uint32_t> words = mask(row);
  if (words.empty() || token_id < 0) return true;
  const auto token = static_cast<size_t>(token_id);
  return (words[token / 32] >> (token % 32) & 1) != 0;
}

View<const uint32_t> Sampler::mask(size_t row) const {
  if (row >= mask_row_idx_.host().size() || mask_row_idx_.host()[row] < 0) return {};
  return masks_.host().subspan(static_cast<size_t>(mask_row_idx_.host()[row]) * num_mask_words_,
                               num_mask_words_);
}

LogprobsView Sampler::logprobs(size_t row) const {
  if (row >= num_top_.host().size() || num_top_.host()[row] < 0) return {};
  const auto num_top = static_cast<size_t>(num_top_.host()[row]);
  return {.logprobs = logprobs_.host().subspan(row, 1),
          .tops = tops_.host().subspan(row * kernels::kMaxTopLogprobs, num_top),
          .num_top = static_cast<int>(num_top)};
}

void Sampler::score(const TensorView& logits, std::span<const int32_t> tokens, int num_top, Stream& stream) {
  scored_.resize(tokens.size());
  std::copy(tokens.begin(), tokens.end(), scored_.host().begin());
  scored_.upload(stream);
  num_top_.resize(tokens.size());
  std::fill(num_top_.host().begin(), num_top_.host().end(), num_top);
  queue_tops(logits, stream);
  cu_edits_.resize(tokens.size() + 1);
  std::fill(cu_edits_.host().begin(), cu_edits_.host().end(), 0);
  cu_edits_.upload(stream);
  const kernels::LogitEdits none{
      .cu_edits = cu_edits_.on_device(), .edits = {}, .before = {}, .mask_row_idx = {}, .masks = {}};
  kernels::token_logprobs(logits, none, scored_.on_device(), log_sums_.on_device(), logprobs_.on_device(),
                          stream);
}

void Sampler::queue_tops(const TensorView& logits, Stream& stream) {
  const size_t num_rows = num_top_.host().size();
  num_top_.upload(stream);
  log_sums_.resize(num_rows);
  logprobs_.resize(num_rows);
  tops_.resize(num_rows * kernels::kMaxTopLogprobs);
  kernels::top_logprobs(logits, num_top_.on_device(), log_sums_.on_device(), tops_.on_device(), stream);
}

void Sampler::gather_edits(std::span<const SampledRow> sampled) {
  draft_logits_processors_.clear();
  draft_logits_processors_.reserve(static_cast<size_t>(std::ranges::count_if(
      sampled, [](const SampledRow& row) { return row.num_ahead > 0 && row.request->logits_processor; })));
  logits_processors_.clear();
  for (size_t row = 0; row < sampled.size(); ++row) {
    const auto& [request, num_ahead] = sampled[row];
    if (!request->logits_processor) {
      logits_processors_.push_back(nullptr);
      continue;
    }
    LogitsProcessor* processor = &*request->logits_processor;
    if (num_ahead > 0) {
      const int drafted = num_ahead - 1;
      const size_t row_before = row - static_cast<size_t>(drafted - request->draft.parent(drafted));
      draft_logits_processors_.push_back(*logits_processors_[row_before]);
      processor = &draft_logits_processors_.back();
      processor->accept(request->draft.tokens[static_cast<size_t>(drafted)]);
    }
    if (const View<const uint32_t> words = mask(row); !words.empty()) processor->apply_mask(words);
    logits_processors_.push_back(processor);
  }
  cu_edits_.resize(sampled.size() + 1);
  const View<int32_t> ends = cu_edits_.host();
  ends[0] = 0;
  for (size_t row = 0; row < sampled.size(); ++row)
    ends[row + 1] = ends[row] + (logits_processors_[row] != nullptr
                                     ? static_cast<int32_t>(logits_processors_[row]->edits().size())
                                     : 0);
  edits_.resize(static_cast<size_t>(ends.back()));
  before_.resize(static_cast<size_t>(ends.back()));
  for (size_t row = 0; row < sampled.size(); ++row)
    if (logits_processors_[row] != nullptr)
      std::ranges::copy(logits_processors_[row]->edits(), edits_.host().begin() + ends[row]);
}

void Sampler::gather_masks(std::span<const SampledRow> sampled) {
  const auto num_masked = static_cast<size_t>(
      std::ranges::count_if(sampled, [](const SampledRow& row) { return row.request->mask != nullptr; }));
  mask_row_idx_.resize(num_masked == 0 ? 0 : sampled.size());
  masks_.resize(num_masked * num_mask_words_);
  if (num_masked == 0) return;
  int32_t num_filled = 0;
  for (size_t row = 0; row < sampled.size(); ++row) {
    Request& request = *sampled[row].request;
    mask_row_idx_.host()[row] = -1;
    if (!request.mask) continue;
    const View<uint32_t> words =
        masks_.host().subspan(static_cast<size_t>(num_filled) * num_mask_words_, num_mask_words_);
    try {
      const auto num_ahead = static_cast<size_t>(sampled[row].num_ahead);
      if (num_ahead == 0 ? request.mask->fill(words) : request.mask->fill_after(num_ahead, words))
        mask_row_idx_.host()[row] = num_filled++;
    } catch (const Error& error) {
      request.failure = error.what();
      request.failure_code = error.code();
    } catch (const std::exception& error) {
      request.failure = error.what();
    }
  }
}

kernels::LogitEdits Sampler::edits() const {
  return {.cu_edits = cu_edits_.on_device(),
          .edits = edits_.on_device(),
          .before = before_.on_device(),
          .mask_row_idx = mask_row_idx_.on_device(),
          .masks = masks_.on_device()};
}

}  // namespace attend
