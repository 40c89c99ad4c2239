#include "attend/exec/model_executor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/attention/attention_batch.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/model/check_model_tensors.h"
#include "attend/model/load_vision_tower.h"
#include "attend/model/loadable_model.h"

namespace attend {

namespace {

// Length of the longest request that a graph is recorded for.
int longest(bool short_requests) { return kernels::kShortRequestMaxKeys + (short_requests ? 0 : 1); }

// Returns whether adapters apply to two layers in the same way.
bool is_same_layer(const AdapterLayer& a, const AdapterLayer& b) {
  const auto is_same_part = [](const AdapterPart& x, const AdapterPart& y) {
    return x.module == y.module && x.first_out == y.first_out &&
           std::ranges::equal(x.rows, y.rows, [](const auto& one, const auto& other) {
             return one.first == other.first && one.count == other.count;
           });
  };
  return a.first_column == b.first_column && a.num_columns == b.num_columns &&
         std::ranges::equal(a.parts, b.parts, is_same_part);
}

}  // namespace

ModelExecutor::ModelExecutor(ExecutorConfig config, const CacheTables& tables,
                             std::unique_ptr<WeightPrefetcher> weights, StepTrace* trace)
    : config_(std::move(config)),
      tables_(tables),
      trace_(trace),
      weights_(std::move(weights)),
      stream_{config_.backend.device},
      graphs_(config_.decode_sizes, config_.verify_sizes) {
  // Only fp8 K/V need scales: values may exceed its range.
  if (is_fp8(config_.backend.model.kv_dtype) && config_.checkpoint) {
    kv_scales_ = read_kv_scales(*config_.checkpoint->open_tensors(), config_.model);
    set_kv_scales(config_.storage, kv_scales_);
  }
  allocate_cache();
  const Device device = config_.backend.device;
  if (device.type == DeviceType::kCpu) {
    if (num_threads() > 1) first_pages_.emplace(storage_->kv_pool(), num_kv_layers());
    return;
  }
  gpu_stream_.emplace(device);
  stream_ = gpu_stream_->get();
}

ModelExecutor::~ModelExecutor() = default;

void ModelExecutor::load(const LoadProgress& progress, const Model* target) {
  std::shared_ptr<const CheckpointTensors> tensors;
  if (weights_)
    tensors = weights_->take();
  else if (config_.checkpoint)
    tensors = config_.checkpoint->open_tensors();
  weights_.reset();
  std::unique_ptr<Model> model = load_model(tensors, config_.model, progress, config_.placement);
  if (adapter_layers_)
    check_adapter_layers(*model, config_.checkpoint.get());
  else if (const AdapterLayers* const layers = model->adapter_layers())
    adapter_layers_ = *layers;
  model_ = std::move(model);
  if (config_.encodes_images) {
    auto tower = load_vision_tower(std::move(tensors), config_.model, config_.placement);
    if (images_)
      images_->set_tower(std::move(tower));
    else
      images_.emplace(std::move(tower), config_.image_cache_bytes);
  }
  if (spec().draft) {
    ensure(target != nullptr, "a draft without the model of its target");
    model_->share_vocab(target->vocab());
    // Rows of padding requests are read too, and must be finite.
    hidden_inputs_ = Tensor::zeros({limits().max_tokens * config_.hidden_input_width()},
                                   config_.placement.dtype, device());
  }
  model_->prepare(limits());
  if (storage_) allocate_step();
  first_pages_.reset();
}

void ModelExecutor::allocate_cache() {
  storage_.emplace(config_.storage, tables_);
  attention_ = create_backend(config_.resolution, BackendContext{.config = config_.backend,
                                                                 .request_table = storage_->request_table(),
                                                                 .pool = storage_->kv_pool()});
  if (model_) allocate_step();
}

void ModelExecutor::allocate_step() {
  step_adapters_.emplace(config_.placement.rank, limits().max_tokens, device());
  // Graphs of decode steps serve requests with and without images.
  const bool has_axes =
      on_gpu() && config_.encodes_images &&
      std::ranges::any_of(spec().ropes, [](const auto& rope) { return !rope.pair_axes.empty(); });
  arrays_.emplace(limits(), tables_.rows, storage_->request_table(), storage_->columns(),
                  config_.has_prefix_info, has_axes);
  if (storage_->states().pool != nullptr && limits().max_draft_tokens > 0)
    replay_arrays_.emplace(limits(), device());
  if (config_.logits)
    logits_ = Tensor::empty({limits().max_logit_rows(), spec().head_size()}, DType::kF32, device());
  if (config_.hidden_states)
    hidden_states_ =
        Tensor::empty({limits().max_tokens, config_.hidden_width()}, config_.placement.dtype, device());
}

void ModelExecutor::release(MemoryParts parts) {
  graphs_.clear();
  arrays_.reset();
  replay_arrays_.reset();
  logits_ = hidden_states_ = Tensor();
  if (parts.kv_cache) {
    attention_.reset();
    storage_.reset();
  }
  if (parts.weights) {
    model_.reset();
    if (images_) images_->set_tower(nullptr);
  }
}

ModelExecutor::NewWeights ModelExecutor::read_weights(std::shared_ptr<const Checkpoint> checkpoint) const {
  std::shared_ptr<const CheckpointTensors> tensors = checkpoint->open_tensors();
  check_kv_scales(*tensors);
  NewWeights weights{.checkpoint = std::move(checkpoint),
                     .model = load_model(tensors, config_.model, {}, config_.placement),
                     .tower = nullptr};
  check_adapter_layers(*weights.model, weights.checkpoint.get());
  weights.model->prepare(limits());
  if (images_) weights.tower = load_vision_tower(std::move(tensors), config_.model, config_.placement);
  return weights;
}

void ModelExecutor::use_weights(NewWeights weights, const Model* target) {
  if (spec().draft && target != nullptr) weights.model->share_vocab(target->vocab());
  config_.checkpoint = std::move(weights.checkpoint);
  model_ = std::move(weights.model);
  if (images_) images_->set_tower(std::move(weights.tower));
}

void ModelExecutor::check_weights(const Checkpoint& checkpoint) const {
  const std::shared_ptr<const CheckpointTensors> tensors = checkpoint.open_tensors();
  check_kv_scales(*tensors);
  check_model_tensors(*tensors, config_.model, config_.placement);
}

void ModelExecutor::check_adapter_layers(const Model& model, const Checkpoint* checkpoint) const {
  if (!adapter_layers_ || model.adapter_layers() == nullptr) return;
  if (!std::ranges::equal(adapter_layers_->layers(), model.adapter_layers()->layers(), is_same_layer))
    fail(ErrorCode::kUnsupported, checkpoint == nullptr ? "dummy weights" : checkpoint->path().string(),
         ": the names or parts of its tensors differ from those at the start, to which LoRA adapters refer: ",
         "expected the same ones");
}

void ModelExecutor::check_kv_scales(const CheckpointTensors& tensors) const {
  if (!is_fp8(config_.backend.model.kv_dtype)) return;
  const auto is_same = [](const KvScales& a, const KvScales& b) { return a.k == b.k && a.v == b.v; };
  if (!std::ranges::equal(read_kv_scales(tensors, config_.model), kv_scales_, is_same))
    fail(ErrorCode::kUnsupported, tensors.path().string(),
         ": the scales of K and V differ from those of the running model, in which the fp8 KV cache is "
         "stored: expected the same ones");
}

void ModelExecutor::record_graphs(const GraphProgress& progress) {
  ensure(on_gpu(), "CUDA graphs on a CPU");
  ExecutorBatch padding;
  padding.prefix_ready = true;
  const auto queue = [&](const GraphStep& step) {
    padding.mode = step.size.verifies() ? ForwardMode::kTargetVerify : ForwardMode::kDecode;
    // The warm-up run and the recording share the arrays, since the graph must not contain their upload.
    if (!cuda::is_capturing(stream_)) {
      arrays_->build(padding, stream_, step.size);
      adapters_ = step.adapters ? step_adapters_->build_without(step.size.num_tokens, step.size, stream_)
                                : kernels::AdapterBatch();
    }
    arrays_->set_max_seqlen_kv(longest(step.short_requests));
    queue_model(config_.hidden_states, graph_source(step.size));
  };
  // Plans of more than one token per request depend on it for no other numbers of requests.
  const auto plan_depends_on_kv_len = [&](const StepSize& size) {
    return attention_->plan_depends_on_kv_len(size.num_reqs);
  };
  graphs_.record(stream_, plan_depends_on_kv_len, queue, progress, config_.adapters);
}

void ModelExecutor::complete(ExecutorInfo& info) const {
  info.has_kv_scales = !kv_scales_.empty();
  if (model_) {
    info.weight_bytes = model_->weight_bytes() + (images_ ? images_->weight_bytes() : 0);
    info.expert_bytes = model_->expert_bytes();
  }
  if (!graphs_.recorded()) return;
  info.graph_sizes.assign(graphs_.decode_sizes().begin(), graphs_.decode_sizes().end());
  info.num_verify_graph_sizes = static_cast<int>(graphs_.verify_sizes().size());
  info.graph_bytes = graphs_.num_bytes();
}

ExecutorOutput ModelExecutor::launch(const ExecutorBatch& batch) {
  ensure(!batch.hidden_states || config_.hidden_states,
         "hidden states requested from an executor without them");
  ensure(batch.rules.empty() || config_.logits, "logits requested from an executor without them");
  const StepSize size = padded_size(batch);
  // The states are updated before the step overwrites the inputs of verified tokens.
  if (batch.verified.num_tokens() > 0) queue_replay(batch.verified);
  num_verified_tokens_ = batch.num_verified_tokens();
  {
    const TraceSpan span(trace_, "inputs");
    arrays_->build(batch, stream_, size);
  }
  ExecutorOutput output{.launched = std::chrono::steady_clock::now(),
                        .logits = {},
                        .rules = arrays_->rules(),
                        .hidden_states = {}};
  if (!output.rules.empty()) output.logits = logits_.view().slice(0, 0, std::ssize(output.rules));
  if (batch.hidden_states) output.hidden_states = hidden_states_.view().slice(0, 0, batch.num_tokens());
  const TraceSpan span(trace_, "forward");
  // These two calls are not part of the graph: their copies differ in each step, and most steps have none.
  queue_late_token_ids(batch);
  queue_hidden_rows(batch);
  image_rows_ = batch.images;
  adapters_ = step_adapters_->build(batch, size, stream_);
  // Kernels that add nothing to a layer's outputs may round them differently.
  if (adapters_.empty() && config_.adapters && config_.placement.batch_invariant)
    adapters_ = step_adapters_->build_without(batch.num_tokens(), size, stream_);
  storage_->upload_changes(stream_);
  const bool short_requests = arrays_->batch().max_seqlen_kv <= kernels::kShortRequestMaxKeys;
  // Plans of steps with many rows depend on further lengths: an eager step uses those of the graph.
  if (size.verifies()) arrays_->set_max_seqlen_kv(longest(short_requests));
  // Kernels of a graph read older keys at once, as recorded.
  const bool in_graph = batch.prefix_ready && batch.images.empty() &&
                        (!spec().draft || batch.hidden_source == graph_source(size));
  const GraphStep step{.size = size, .short_requests = short_requests, .adapters = !adapters_.empty()};
  if (!in_graph || !graphs_.launch(step, stream_)) queue_model(batch.hidden_states, batch.hidden_source);
  return output;
}

HiddenSource ModelExecutor::graph_source(const StepSize& size) {
  return size.verifies() ? HiddenSource::kTarget : HiddenSource::kDraft;
}

StepSize ModelExecutor::padded_size(const ExecutorBatch& batch) const {
  const auto num_reqs = static_cast<int>(batch.requests.size());
  if (batch.mode == ForwardMode::kTargetVerify) {
    // A draft model may compute more tokens of a request than a step verifies.
    int max_seqlen_q = 0;
    for (const ExecutorRequest& request : batch.requests)
      max_seqlen_q = std::max(max_seqlen_q, request.num_new);
    return graphs_.padded_verify_size(num_reqs, batch.num_tokens(), max_seqlen_q);
  }
  // Graphs are recorded without shared keys.
  const bool padded = batch.mode == ForwardMode::kDecode && batch.shared.num_keys == 0;
  return padded ? StepSize::decode(graphs_.padded_size(num_reqs)) : StepSize();
}

void ModelExecutor::queue_late_token_ids(const ExecutorBatch& batch) {
  for (const LateTokenIds& late : batch.late_token_ids) {
    const int64_t count = late.ids.shape[0];
    int32_t* const to = arrays_->token_ids().data() + late.first_token;
    if (on_gpu())
      cuda::copy(late.ids, TensorView::contiguous(to, DType::kI32, {count}, device()), stream_);
    else
      std::transform(late.ids.as<const int32_t>(), late.ids.as<const int32_t>() + count, to,
                     [](int32_t id) { return std::max(id, 0); });
  }
}

TensorView ModelExecutor::hidden_inputs(HiddenSource source) const {
  const int64_t width = source == HiddenSource::kTarget ? spec().draft->target_width() : spec().hidden_size;
  const int64_t max_tokens = limits().max_tokens;
  return hidden_inputs_.view().slice(0, 0, max_tokens * width).reshape({max_tokens, width});
}

void ModelExecutor::queue_hidden_rows(const ExecutorBatch& batch) {
  ensure(batch.hidden_rows.empty() || spec().draft.has_value(), "hidden states for ", spec().architecture,
         ", which reads none");
  for (const HiddenRows& hidden : batch.hidden_rows) {
    const TensorView to = hidden_inputs(batch.hidden_source)
                              .slice(0, hidden.first_token, hidden.first_token + hidden.rows.shape[0]);
    require(hidden.rows.dtype == to.dtype && hidden.rows.rank == 2 && hidden.rows.shape[1] == to.shape[1],
            "hidden_rows ", hidden.rows, ": expected ", to.dtype, "[", to.shape[0], ", ", to.shape[1], "]");
    kernels::copy_rows(hidden.rows, to, stream_);
  }
}

void ModelExecutor::queue_model(bool hidden_states, HiddenSource source) {
  const ForwardBatch& batch = arrays_->batch();
  storage_->write_new_slots({.rows = raw(batch.request_rows),
                             .cu_seqlen_q = batch.cu_seqlen_q,
                             .positions = arrays_->row_positions(),
                             .slots = raw(batch.out_slots)},
                            stream_);
  attention_->plan(batch, stream_);
  const auto num_rows = std::ssize(arrays_->model_input().logit_rows);
  const TensorView logits = num_rows > 0 ? logits_.view().slice(0, 0, num_rows) : TensorView();
  ModelInput input = arrays_->model_input();
  const StepStates states = storage_->states();
  input.states = states.pool;
  input.state_load_slots = states.load_slots;
  input.state_save_slots = states.save_slots;
  input.state_rows = states.rows;
  input.verified_tokens = states.verified_tokens.first(
      states.verified_tokens.empty() ? 0 : static_cast<size_t>(num_verified_tokens_));
  input.embedding_rows = image_rows_;
  input.adapters = adapters_;
  if (spec().draft) {
    input.hidden_states = hidden_inputs(source).slice(0, 0, batch.num_tokens);
    input.hidden_source = source;
  }
  if (hidden_states)
    input.hidden = {.before_layers = config_.hidden_layers,
                    .out = hidden_states_.view().slice(0, 0, batch.num_tokens)};
  model_->forward(input, batch, *attention_, logits, stream_);
}

void ModelExecutor::queue_replay(const VerifiedStates& verified) {
  ensure(replay_arrays_.has_value() && verified.num_tokens() == num_verified_tokens_, "replay of ",
         verified.num_tokens(), " tokens: the last launch verified ", num_verified_tokens_);
  model_->replay({.states = *storage_->states().pool,
                  .batch = replay_arrays_->build(verified, stream_),
                  .num_tokens = verified.num_tokens()},
                 stream_);
}

TensorView ModelExecutor::compute_logits(int first_token, int num_tokens) {
  if (token_indices_.view().empty()) {
    const int max_tokens = limits().max_tokens;
    std::vector<int32_t> indices(static_cast<size_t>(max_tokens));
    std::iota(indices.begin(), indices.end(), 0);
    token_indices_ = Tensor::from<int32_t>(indices, {max_tokens});
    if (on_gpu()) {
      const Tensor on_host = token_indices_;
      token_indices_ = cuda::empty({max_tokens}, DType::kI32, device());
      cuda::copy(on_host, token_indices_, stream_);
      cuda::synchronize(stream_);
    }
  }
  const TensorView logits = logits_.view().slice(0, 0, num_tokens);
  model_->head(token_indices_.span<int32_t>().subspan(static_cast<size_t>(first_token),
                                                      static_cast<size_t>(num_tokens)),
               logits, stream_);
  return logits;
}

}  // namespace attend
