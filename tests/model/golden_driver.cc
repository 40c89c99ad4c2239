#include "tests/model/golden_driver.h"

#include <algorithm>
#include <numeric>

#include "attend/base/math.h"

namespace attend::test {
namespace {

// Copies the arrays of a step to its device.
class StepArrays {
 public:
  explicit StepArrays(Device device) : device_(device) {}

  template <class T>
  View<const T> view(View<const T> host) {
    if (device_.type == DeviceType::kCpu || host.empty()) return host;
    const auto num_bytes = static_cast<int64_t>(host.size_bytes());
    copies_.push_back(
        cuda::copy_to(TensorView::contiguous(const_cast<T*>(host.data()), DType::kU8, {num_bytes}), device_));
    return {static_cast<const T*>(copies_.back().view().data), host.size()};
  }

 private:
  Device device_;
  std::vector<Tensor> copies_;
};

ForwardMode mode_of(std::span<const Extension> extensions) {
  const auto decodes = [](const Extension& e) { return e.sequence->num_computed >= e.sequence->num_prompt; };
  if (std::ranges::all_of(extensions, decodes)) return ForwardMode::kDecode;
  return std::ranges::any_of(extensions, decodes) ? ForwardMode::kMixed : ForwardMode::kExtend;
}

}  // namespace

GoldenDriver::GoldenDriver(Model& model, const ModelPlacement& placement, const BackendEntry& backend,
                           int page_size, int max_reqs, int max_len, int max_tokens,
                           std::optional<DType> kv_dtype)
    : model_(model),
      rows_(max_reqs, max_len),
      slots_(make_allocator(page_size, max_reqs * ceil_div(max_len, page_size) + 1)),
      stream_{placement.device} {
  if (placement.device.type == DeviceType::kCuda) {
    gpu_stream_.emplace(placement.device);
    stream_ = gpu_stream_->get();
  }
  const BatchLimits limits{
      .max_reqs = max_reqs, .max_tokens = max_tokens, .max_kv_tokens = int64_t{max_reqs} * max_len};
  ModelGeometry geometry = model.spec().geometry(placement.dtype, kv_dtype.value_or(placement.dtype));
  geometry.max_context_len = max_len;
  widest_window_left_ = widest_window_left(model.spec().caches());
  const BackendConfig config{.device = placement.device,
                             .model = geometry,
                             .limits = limits,
                             .page_size = page_size,
                             .deterministic = placement.batch_invariant};
  // Layers with a window have a separate pool half if other layers have none.
  CacheStorageConfig storage = make_cache_storage_config(model.spec().caches(), page_size, geometry.kv_dtype,
                                                         placement.device, SwaHalf{.full_tokens_ratio = 1.0});
  storage.num_pages = max_reqs * ceil_div(max_len, page_size) + 1;
  window_slots_ = make_window_slots(storage);
  if (storage.has_states()) {
    state_slots_.emplace(rows_.num_rows(), 0);
    storage.states.num_slots = state_slots_->num_slots();
    storage.states.dtype = placement.dtype;
  }
  storage_.emplace(storage, CacheTables{.rows = rows_,
                                        .window_slots = window_slots_.get(),
                                        .state_slots = state_slots_ ? &*state_slots_ : nullptr});
  attention_ = backend.create(
      {.config = config, .request_table = storage_->request_table(), .pool = storage_->kv_pool()});
  model_.prepare(limits);
}

Sequence GoldenDriver::begin(std::span<const int32_t> prompt) {
  return {.tokens = {prompt.begin(), prompt.end()},
          .num_prompt = static_cast<int>(prompt.size()),
          .num_computed = 0,
          .row = rows_.allocate().value()};
}

void GoldenDriver::end(const Sequence& sequence) {
  const auto slots = rows_.row(sequence.row).first(static_cast<size_t>(sequence.num_computed));
  if (window_slots_ != nullptr) {
    const int num_pages = ceil_div(sequence.num_computed, slots_->page_size());
    window_slots_->drop(pages_of(sequence, sequence.first_held_page, num_pages));
    window_slots_->forget(pages_of(sequence, 0, num_pages));
  }
  slots_->free(slots);
  rows_.free(sequence.row);
}

std::vector<PageId> GoldenDriver::pages_of(const Sequence& sequence, int first, int end) const {
  std::vector<PageId> pages;
  const int page_size = slots_->page_size();
  for (int page = first; page < end; ++page)
    pages.emplace_back(rows_.row(sequence.row)[static_cast<size_t>(page * page_size)].value / page_size);
  return pages;
}

// The next query attends to no key before its window, so whole pages there are freed for any sequence.
void GoldenDriver::release_before_window(Sequence& sequence) {
  if (window_slots_ == nullptr) return;
  const int first_unmasked = std::max(0, sequence.num_computed - widest_window_left_);
  const int first_page = first_unmasked / slots_->page_size();
  const std::vector<PageId> masked = pages_of(sequence, sequence.first_held_page, first_page);
  window_slots_->drop(masked);
  window_slots_->forget(masked);
  sequence.first_held_page = first_page;
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
  for (const Extension& extension : extensions) release_before_window(*extension.sequence);
  std::vector<TokenSlot> out_slots(positions.size());
  const bool fits = mode == ForwardMode::kDecode
                        ? slots_->alloc_decode(seqlens, last_slots, out_slots)
                        : slots_->alloc_extend(prefix_lens, seqlens, last_slots, out_slots);
  ensure(fits && (window_slots_ == nullptr || window_slots_->map(out_slots)),
         "the pool is sized for every sequence");

  int max_seqlen_q = 0;
  const TensorView& table = storage_->request_table();
  PrefixInfo prefix{.table = table.as<const int32_t>(), .table_stride = table.strides[0]};
  for (size_t i = 0; i < extensions.size(); ++i) {
    const auto [sequence, num_new] = extensions[i];
    const auto begin = static_cast<size_t>(cu_seqlen_q[i]);
    rows_.write(sequence->row, sequence->num_computed,
                View<const TokenSlot>(out_slots).subspan(begin, static_cast<size_t>(num_new)));
    sequence->num_computed += num_new;
    max_seqlen_q = std::max(max_seqlen_q, num_new);
    prefix.add(sequence->num_computed, num_new);
  }
  const ForwardBatch batch{.mode = mode,
                           .num_reqs = static_cast<int>(extensions.size()),
                           .num_tokens = static_cast<int>(positions.size()),
                           .max_seqlen_q = max_seqlen_q,
                           .max_seqlen_kv = std::ranges::max(seqlens),
                           .request_rows = rows,
                           .seqlen_kv = seqlens,
                           .cu_seqlen_q = cu_seqlen_q,
                           .positions = positions,
                           .out_slots = out_slots,
                           .tree_mask = {},
                           .prefix = prefix};
  return compute(batch, {.token_ids = token_ids, .logit_rows = logit_rows, .prompt_lens = prompt_lens});
}

Tensor GoldenDriver::compute(const ForwardBatch& host_batch, const ModelInput& host_input) {
  StepArrays arrays(stream_.device);
  ForwardBatch batch = host_batch;
  batch.request_rows = arrays.view(host_batch.request_rows);
  batch.seqlen_kv = arrays.view(host_batch.seqlen_kv);
  batch.cu_seqlen_q = arrays.view(host_batch.cu_seqlen_q);
  batch.positions = arrays.view(host_batch.positions);
  batch.out_slots = arrays.view(host_batch.out_slots);
  ModelInput input{.token_ids = arrays.view(host_input.token_ids),
                   .logit_rows = arrays.view(host_input.logit_rows),
                   .prompt_lens = arrays.view(host_input.prompt_lens)};
  const Tensor logits = Tensor::empty({std::ssize(input.logit_rows), model_.spec().vocab_size}, DType::kF32);
  const Tensor computed = gpu_stream_ ? cuda::copy_to(logits, stream_.device) : logits;
  std::vector<std::vector<int32_t>> columns;
  for (StepColumn* column : storage_->columns()) {
    const bool per_token = column->length() == StepColumn::Length::kTokens;
    auto& entries = columns.emplace_back(static_cast<size_t>(per_token ? batch.num_tokens : batch.num_reqs));
    column->fill({.request_rows = host_batch.request_rows,
                  .seqlen_kv = host_batch.seqlen_kv,
                  .cu_seqlen_q = host_batch.cu_seqlen_q,
                  .out_slots = host_batch.out_slots},
                 entries);
    column->set_entries(arrays.view(View<const int32_t>(entries)));
  }
  const StepStates states = storage_->states();
  input.states = states.pool;
  input.state_load_slots = states.load_slots;
  input.state_save_slots = states.save_slots;
  storage_->write_new_slots({.rows = raw(batch.request_rows),
                             .cu_seqlen_q = batch.cu_seqlen_q,
                             .positions = batch.positions,
                             .slots = raw(batch.out_slots)},
                            stream_);
  attention_->plan(batch, stream_);
  model_.forward(input, batch, *attention_, computed, stream_);
  if (gpu_stream_) {
    cuda::copy(computed, logits, stream_);
    cuda::synchronize(stream_);
  }
  return logits;
}

}  // namespace attend::test
