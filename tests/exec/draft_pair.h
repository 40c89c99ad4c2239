// Executors of a target and of its draft over one request's row.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "attend/backends/table.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/exec/model_executor.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kv/state/state_slots.h"

namespace attend::test {

constexpr int kDraftContext = 64, kDraftPage = 16;

class DraftPair {
 public:
  DraftPair(const std::filesystem::path& target, const std::filesystem::path& draft, Device device,
            const std::function<void(ModelSpec&)>& change = {})
      : rows_(2, kDraftContext) {
    row_ = *rows_.allocate();
    std::vector<TokenSlot> slots;
    for (int i = 0; i < kDraftContext; ++i) slots.emplace_back(kDraftPage + i);
    rows_.write(row_, 0, slots);
    const auto target_files = open_checkpoint(target);
    const ModelSpec target_spec = read_config(*target_files);
    const auto draft_files = open_checkpoint(draft);
    ModelSpec draft_spec = fit_draft(read_draft_config(*draft_files), target_spec);
    if (change) change(draft_spec);
    target_ = make(open_checkpoint(target), target_spec, draft_spec.draft->before_layers, device);
    std::vector<int> recurrent;
    if (!draft_spec.draft->returns_normed) recurrent = {draft_spec.num_layers()};
    draft_ = make(open_checkpoint(draft), draft_spec, recurrent, device);
    target_->load();
    draft_->load({}, &target_->model());
    if (device.type == DeviceType::kCuda) {
      target_->record_graphs();
      draft_->record_graphs();
    }
  }

  ModelExecutor& target() { return *target_; }
  ModelExecutor& draft() { return *draft_; }

  // Tokens [first, end) of the request. The logits of all of them are returned.
  ExecutorBatch step(std::span<const int32_t> tokens, int first, int end) const {
    ExecutorBatch batch;
    const int num_new = end - first;
    batch.mode = num_new == 1 && first > 0 ? ForwardMode::kDecode : ForwardMode::kExtend;
    batch.requests = {{.row = row_,
                       .num_computed = first,
                       .num_new = num_new,
                       .prompt_len = end,
                       .num_logit_rows = num_new}};
    batch.token_ids = {tokens.begin() + first, tokens.begin() + end};
    batch.rules.assign(static_cast<size_t>(num_new), {.temperature = 0.0f});
    batch.prefix_ready = true;
    batch.hidden_states = true;
    return batch;
  }

 private:
  std::unique_ptr<ModelExecutor> make(std::shared_ptr<const Checkpoint> files, const ModelSpec& spec,
                                      std::vector<int> hidden_layers, Device device) {
    ExecutorConfig config;
    config.checkpoint = std::move(files);
    config.model = spec;
    const bool on_gpu = device.type == DeviceType::kCuda;
    const BackendEntry* const entry = find_backend(backend_table(), on_gpu ? "triton" : "cpu");
    config.resolution = {.prefill = entry, .decode = entry, .page_size = kDraftPage};
    config.placement.device = device;
    config.backend = {.device = device,
                      .model = spec.geometry(DType::kF32, DType::kF32),
                      .limits = {.max_reqs = kDraftContext,
                                 .max_tokens = kDraftContext,
                                 .max_kv_tokens = 2 * kDraftContext},
                      .page_size = kDraftPage};
    config.backend.model.max_context_len = kDraftContext;
    config.storage = make_cache_storage_config(spec.caches(), kDraftPage, DType::kF32, device);
    config.storage.num_pages = 1 + kDraftContext / kDraftPage;
    if (config.storage.has_states()) {
      states_.emplace(rows_.num_rows(), 0);
      config.storage.states.num_slots = states_->num_slots();
      config.storage.states.dtype = DType::kF32;
    }
    config.hidden_states = true;
    config.hidden_layers = std::move(hidden_layers);
    if (on_gpu) config.decode_sizes = {1, 2};
    const bool has_states = config.storage.has_states();
    return std::make_unique<ModelExecutor>(
        config, CacheTables{.rows = rows_, .state_slots = has_states ? &*states_ : nullptr});
  }

  ReqToTokenPool rows_;
  std::optional<StateSlots> states_;
  RequestRow row_;
  std::unique_ptr<ModelExecutor> target_, draft_;
};

inline Tensor copy_of(const TensorView& view, Stream& stream) {
  const Tensor copy = Tensor::empty({view.shape[0], view.shape[1]}, view.dtype, stream.device);
  Stream queue = stream;
  kernels::copy_rows(view, copy, queue);
  if (stream.device.type == DeviceType::kCuda) cuda::synchronize(queue);
  return copy;
}

}  // namespace attend::test
