#include "tests/model/golden_driver.h"

#include <algorithm>
#include <numeric>

#include "attend/base/math.h"

namespace attend::test {
namespace {

MhaKvPool::Config pool_config(const ModelConfig& model, int page_size, int num_pages) {
  return {.num_layers = model.num_layers,
          .num_kv_heads = model.num_kv_heads,
          .head_dim_qk = model.head_dim,
          .head_dim_v = model.head_dim,
          .page_size = page_size,
          .num_pages = num_pages,
          .dtype = DType::kF32,
          .layout = KvLayout::kHeadMajor,
          .scales = {}};
}

ForwardMode mode_of(std::span<const Extension> extensions) {
  const auto decodes = [](const Extension& e) { return e.sequence->num_computed >= e.sequence->num_prompt; };
  if (std::ranges::all_of(extensions, decodes)) return ForwardMode::kDecode;
  return std::ranges::any_of(extensions, decodes) ? ForwardMode::kMixed : ForwardMode::kExtend;
}

}  // namespace

GoldenDriver::GoldenDriver(Model& model, const BackendEntry& backend, int page_size, int max_reqs,
                           int max_len, int max_tokens)
    : model_(model),
      rows_(max_reqs, max_len),
      slots_(make_allocator(page_size, max_reqs * ceil_div(max_len, page_size) + 1)),
      pool_(pool_config(model.config(), page_size, max_reqs * ceil_div(max_len, page_size) + 1)) {
  const BatchLimits limits{
      .max_reqs = max_reqs, .max_tokens = max_tokens, .max_kv_tokens = int64_t{max_reqs} * max_len};
  ModelGeometry geometry = model.config().geometry(DType::kF32, DType::kF32);
  geometry.max_context_len = max_len;
  const BackendConfig config{
      .device = {}, .model = geometry, .limits = limits, .page_size = page_size, .deterministic = false};
  attention_ = backend.create(backend, {.config = config, .requests = rows_, .pool = pool_});
  model_.prepare(limits);
}

Sequence GoldenDriver::begin(std::span<const int32_t> prompt) {
  return {.tokens = {prompt.begin(), prompt.end()},
          .num_prompt = static_cast<int>(prompt.size()),
          .num_computed = 0,
          .row = rows_.allocate().value()};
}

void GoldenDriver::end(const Sequence& sequence) {
  slots_->free(rows_.row(sequence.row).first(static_cast<size_t>(sequence.num_computed)));
  rows_.free(sequence.row);
}

Tensor GoldenDriver::step(std::span<const Extension> extensions) {
  int num_tokens = 0;
  for (const Extension& extension : extensions) num_tokens += extension.num_new;
  std::vector<int32_t> all(static_cast<size_t>(num_tokens));
  std::iota(all.begin(), all.end(), 0);
  return run(extensions, all);
}

void GoldenDriver::decode(std::span<const Extension> extensions) {
  std::vector<int32_t> last;
  for (const Extension& e : extensions) last.push_back((last.empty() ? -1 : last.back()) + e.num_new);
  const Tensor logits = run(extensions, last);
  for (size_t i = 0; i < extensions.size(); ++i) {
    const auto row = logits.view()[static_cast<int64_t>(i)].span<float>();
    const auto best = std::ranges::max_element(row) - row.begin();
    extensions[i].sequence->tokens.push_back(static_cast<int32_t>(best));
  }
}

Tensor GoldenDriver::run(std::span<const Extension> extensions, std::span<const int32_t> logit_rows) {
  std::vector<int32_t> prefix_lens, seqlens, cu_seqlen_q{0}, prompt_lens, positions, token_ids;
  std::vector<TokenSlot> last_slots;
  std::vector<RequestRow> rows;
  for (const auto& [sequence, num_new] : extensions) {
    const int first = sequence->num_computed;
    prefix_lens.push_back(first);
    seqlens.push_back(first + num_new);
    prompt_lens.push_back(sequence->num_prompt);
    last_slots.push_back(first == 0 ? kNoSlot : rows_.row(sequence->row)[static_cast<size_t>(first) - 1]);
    rows.push_back(sequence->row);
    for (int p = first; p < first + num_new; ++p) {
      positions.push_back(p);
      token_ids.push_back(sequence->tokens.at(static_cast<size_t>(p)));
    }
    cu_seqlen_q.push_back(static_cast<int32_t>(positions.size()));
  }
  const ForwardMode mode = mode_of(extensions);
  std::vector<TokenSlot> out_slots(positions.size());
  const bool fits = mode == ForwardMode::kDecode
                        ? slots_->alloc_decode(seqlens, last_slots, out_slots)
                        : slots_->alloc_extend(prefix_lens, seqlens, last_slots, out_slots);
  ensure(fits, "the pool is sized for every sequence");

  int max_seqlen_q = 0;
  for (size_t i = 0; i < extensions.size(); ++i) {
    const auto [sequence, num_new] = extensions[i];
    const auto begin = static_cast<size_t>(cu_seqlen_q[i]);
    rows_.write(sequence->row, sequence->num_computed,
                View<const TokenSlot>(out_slots).subspan(begin, static_cast<size_t>(num_new)));
    sequence->num_computed += num_new;
    max_seqlen_q = std::max(max_seqlen_q, num_new);
  }
  const ForwardBatch batch{.mode = mode,
                           .num_reqs = static_cast<int>(extensions.size()),
                           .num_tokens = static_cast<int>(positions.size()),
                           .max_seqlen_q = max_seqlen_q,
                           .request_rows = rows,
                           .seqlen_kv = seqlens,
                           .cu_seqlen_q = cu_seqlen_q,
                           .positions = positions,
                           .out_slots = out_slots,
                           .tree_mask = {}};
  const Tensor logits = Tensor::empty({std::ssize(logit_rows), model_.config().vocab_size}, DType::kF32);
  attention_->plan(batch, stream_);
  model_.forward({.token_ids = token_ids, .logit_rows = logit_rows, .prompt_lens = prompt_lens}, batch,
                 *attention_, logits, stream_);
  return logits;
}

}  // namespace attend::test
