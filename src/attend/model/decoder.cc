#include "attend/model/decoder.h"

#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/fused/vocab_ops.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/model/modules/module.h"

namespace attend {

DecoderModel::DecoderModel(const ModelSpec& spec, const DecoderNames& names, const ModelPlacement& placement,
                           bool has_lm_head)
    : spec_(spec),
      names_(names),
      placement_(placement),
      has_lm_head_(has_lm_head),
      embedding_norm_(make_norm(spec.learned_positions && spec.learned_positions->norm, spec)),
      final_norm_(make_norm(spec.final_norm, spec)) {
  if (placement.num_ranks > 1) head_bounds_ = balanced_bounds(spec_.head_size(), placement.num_ranks);
  if (spec_.draft) draft_input_.emplace(spec_, names_);
  for (int i = 0; i < spec_.num_layers(); ++i) {
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(i)];
    const LayerIndices indices{.cache = spec_.cache_layer(i), .state = spec_.state_layer(i)};
    add(i, make_mixer(layer, indices, spec_, names_, placement_.device, placement_.dtype));
    add(i, make_mlp(layer, spec_, names_, placement_.device));
    if (spec_.layer_embeddings) add(i, std::make_unique<LayerEmbeddingModule>(i, spec_, names_));
    if (spec_.layer_scales) add(i, std::make_unique<LayerScaleModule>(names_));
  }
  if (spec_.layer_embeddings) layer_embeddings_.emplace(spec_, names_);
}

void DecoderModel::add(int layer, std::unique_ptr<Module> module) {
  if (module == nullptr) return;
  modules_.push_back(std::move(module));
  module_layers_.push_back(layer);
}

std::vector<WeightSlot> DecoderModel::weight_slots() {
  std::vector<WeightSlot> slots;
  const StoredForm form{.zero_centered_norms = spec_.zero_centered_norms,
                        .norm_weights = spec_.norm_weights,
                        .norm_biases = spec_.norm_biases,
                        .transposed_linears = spec_.transposed_linears};
  SlotWriter top("", slots, form);
  if (has_own_embedding())
    top.matrix(names_.embedding, spec_.vocab_size, spec_.hidden_size, WeightUse::kTable, embedding_);
  if (draft_input_) draft_input_->add_slots(top);
  if (const auto& learned = spec_.learned_positions) {
    top.matrix(names_.positions, learned->num_rows, spec_.hidden_size, WeightUse::kTable, positions_);
    if (learned->num_token_types > 0)
      top.matrix(names_.token_types, learned->num_token_types, spec_.hidden_size, WeightUse::kTable,
                 token_types_);
    if (learned->norm) top.norm(names_.embedding_norm, spec_.hidden_size, embedding_norm_);
  }
  if (layer_embeddings_) layer_embeddings_->add_slots(top);
  for (size_t i = 0; i < modules_.size(); ++i) {
    SlotWriter layer(layer_prefix(module_layers_[i], spec_, names_), slots, form,
                     modules_[i]->takes_adapters());
    modules_[i]->add_slots(layer);
  }
  // The head is linear, so the final norm's weights are scaled instead of the logits.
  StoredForm final_form = form;
  final_form.zero_centered_norms &= !spec_.plain_final_norm;
  if (spec_.final_norm)
    SlotWriter("", slots, final_form)
        .norm(draft_weight_name(names_.final_norm, spec_, names_), spec_.hidden_size, final_norm_,
              spec_.final_logit_scale);
  if (has_lm_head_)
    top.matrix(names_.lm_head, num_head_rows(), spec_.hidden_size, WeightUse::kHead, head_.weight);
  if (spec_.head_bias) top.bias(names_.lm_head, num_head_rows(), head_.bias);
  return slots;
}

void DecoderModel::adopt(LoadedWeights weights) {
  weights_ = std::move(weights);
  if (!has_lm_head_ && !spec_.draft) head_.weight = tied_head(embedding_);
}

Weight DecoderModel::tied_head(const Weight& table) const {
  if (head_bounds_.empty()) return table;
  const auto rank = static_cast<size_t>(placement_.rank);
  Weight rows = table.rows(head_bounds_[rank], head_bounds_[rank + 1]);
  rows.shard = ShardAxis::kOutFeatures;
  return rows;
}

VocabWeights DecoderModel::vocab() const { return {.embedding = embedding_, .head = head_}; }

void DecoderModel::share_vocab(const VocabWeights& target) {
  if (!spec_.draft) return;
  const auto check = [&](std::string_view name, const Weight& weight, int64_t rows) {
    require(weight.out_features() == rows && weight.in_features() == spec_.hidden_size, "the target's ", name,
            " [", weight.out_features(), ", ", weight.in_features(), "]: ", spec_.architecture,
            " without its own one expects [", rows, ", ", spec_.hidden_size, "]");
  };
  if (!has_own_embedding()) {
    check("embedding", target.embedding, spec_.vocab_size);
    embedding_ = target.embedding;
  }
  if (has_lm_head_) return;
  if (spec_.tie_word_embeddings && !spec_.draft->shares_vocab) {
    head_.weight = tied_head(embedding_);
    return;
  }
  check("head", target.head.weight, num_head_rows());
  head_ = target.head;
}

void DecoderModel::check_weights() const {
  if (weights_.files) weights_.files->check_unchanged();
}

int DecoderModel::num_positions(const BatchLimits& limits) const {
  return static_cast<int>(std::min<int64_t>(spec_.max_context_len(), limits.max_kv_tokens));
}

DecoderModel::Sizes DecoderModel::sizes(const BatchLimits& limits) {
  const auto padded_bytes = [&](int64_t width, size_t element_bytes) {
    return 1.0 * limits.max_tokens * static_cast<double>(width) * static_cast<double>(element_bytes) + 64.0;
  };
  const size_t element_bytes = size_of(placement_.dtype);
  Sizes sizes{
      .stream = padded_bytes(spec_.hidden_size, element_bytes),
      .partial_squares = padded_bytes(
          kernels::Residual::num_partial_squares(spec_.hidden_size, placement_.device), sizeof(float)),
      .scratch = 0.0,
      .workspace = 0.0,
      .kept = 0.0,
      .draft = 0.0,
      .layer_embeddings =
          layer_embeddings_ ? 2.0 * padded_bytes(layer_embeddings_->width(), element_bytes) : 0.0};
  if (draft_input_)
    for (const int64_t width : draft_input_->memory_widths())
      sizes.draft += padded_bytes(width, element_bytes);
  for (const auto& module : modules_) {
    sizes.kept += static_cast<double>(Arena::padded_bytes(
        static_cast<size_t>(limits.max_verified_tokens() * module->kept_width()) * element_bytes));
    double bytes = 0.0;
    for (const int64_t width : module->scratch_widths()) bytes += padded_bytes(width, element_bytes);
    sizes.scratch = std::max(sizes.scratch, bytes);
  }
  int64_t widest = 0;
  for (const WeightSlot& slot : weight_slots()) widest = std::max(widest, slot.columns);
  const WeightFormat format =
      spec_.quantization.storage == WeightStorage::kPlain ? WeightFormat::kPlain : WeightFormat::kFp8;
  const size_t workspace_bytes =
      kernels::linear_workspace_bytes(limits.max_tokens, widest, placement_.device, format);
  if (workspace_bytes > 0) sizes.workspace = static_cast<double>(workspace_bytes) + 64.0;
  return sizes;
}

double DecoderModel::prepared_bytes(const BatchLimits& limits) {
  const Sizes bytes = sizes(limits);
  double total = bytes.sum();
  for (const RopeConfig& rope : spec_.ropes)
    total += RopeTable::num_bytes(rope, num_positions(limits), limits.max_tokens);
  return total;
}

void DecoderModel::prepare(const BatchLimits& limits) {
  require(limits.max_tokens >= 1 && limits.max_kv_tokens >= 1, "limits of ", limits.max_tokens,
          " tokens per step and ", limits.max_kv_tokens, " of K/V: a model requires at least 1 of each");
  const Sizes bytes = sizes(limits);
  const Device device = placement_.device;
  arena_.emplace(static_cast<size_t>(bytes.sum()), "activations", device);
  const auto rows = [&] {
    return arena_->allocate({limits.max_tokens, spec_.hidden_size}, placement_.dtype).view();
  };
  const auto memory = [&](double num_bytes) {
    return arena_->allocate({static_cast<int64_t>(num_bytes) / 64 * 64}, DType::kU8).view();
  };
  stream_memory_ = {.sum = rows(), .scratch = rows(), .gathered = rows()};
  if (const int64_t partial_squares = kernels::Residual::num_partial_squares(spec_.hidden_size, device);
      partial_squares > 0)
    stream_memory_.partial_squares = arena_->allocate({limits.max_tokens, partial_squares}, DType::kF32);
  scratch_ = memory(bytes.scratch);
  if (draft_input_) draft_memory_ = memory(bytes.draft);
  workspace_ = {};
  if (bytes.workspace > 0.0) {
    const TensorView workspace = memory(bytes.workspace);
    workspace_ = {static_cast<std::byte*>(workspace.data), workspace.num_bytes()};
  }
  layer_vectors_.fill({});
  if (layer_embeddings_)
    for (TensorView& vectors : layer_vectors_)
      vectors = arena_->allocate({limits.max_tokens, layer_embeddings_->width()}, placement_.dtype).view();
  kept_.clear();
  for (const auto& module : modules_) {
    const int64_t width = limits.max_verified_tokens() > 0 ? module->kept_width() : 0;
    kept_.push_back(width == 0
                        ? TensorView()
                        : arena_->allocate({limits.max_verified_tokens(), width}, placement_.dtype).view());
  }
  if (limits.max_verified_tokens() > 0) {
    const auto num_kept = std::ranges::count(kept_, false, &TensorView::empty);
    int64_t num_states = 0;
    for (const CacheSpec& cache : state_caches(spec_.caches())) num_states += std::ssize(cache.layers);
    ensure(num_kept == num_states, num_states, " layers have states, but ", num_kept,
           " keep the inputs of drafts");
  }
  limits_ = limits;
  ropes_.clear();
  for (const RopeConfig& rope : spec_.ropes)
    ropes_.emplace_back(rope, num_positions(limits), limits.max_tokens, device);
  rope_rows_.resize(ropes_.size());
  if (spec_.embedding_norm) zero_weight_ = Tensor::zeros({spec_.hidden_size}, DType::kF32, device);
  if (spec_.learned_positions) zero_types_ = Tensor::zeros({limits.max_tokens}, DType::kI32, device);
}

void DecoderModel::check(const ModelInput& input, const ForwardBatch& batch) const {
  ensure(arena_.has_value(), "forward() of a model before prepare()");
  require(batch.num_tokens >= 0 && batch.num_tokens <= limits_.max_tokens, "num_tokens ", batch.num_tokens,
          ": the model was prepared for at most ", limits_.max_tokens);
  require(std::ssize(input.token_ids) == batch.num_tokens, "token_ids: ", input.token_ids.size(),
          " for a batch of ", batch.num_tokens, " tokens");
  require(input.token_types.empty() || std::ssize(input.token_types) == batch.num_tokens,
          "token_types: ", input.token_types.size(), " for a batch of ", batch.num_tokens, " tokens");
  require(input.states != nullptr || !spec_.has_states(), "states: expected the states of ",
          spec_.architecture, ", which has recurrent layers");
  ensure(!spec_.draft || !head_.weight.data.empty(), "forward() of a draft before share_vocab()");
  ensure(placement_.num_ranks == 1 || placement_.ranks != nullptr,
         "forward() of a rank without a communicator");
  const auto num_outputs = std::max<int64_t>(1, std::ssize(input.hidden.before_layers));
  require(input.hidden.out.empty() ? input.hidden.before_layers.empty()
                                   : input.hidden.out.shape[0] == batch.num_tokens &&
                                         input.hidden.out.shape[1] == num_outputs * spec_.hidden_size,
          "hidden.out ", input.hidden.out, ": expected [", batch.num_tokens, ", ",
          num_outputs * spec_.hidden_size, "]");
  for (const EmbeddingRows& rows : input.embedding_rows)
    require(spec_.vision && rows.rows.rank == 2 && rows.rows.shape[1] == spec_.vision->row_size() &&
                rows.first_token >= 0 && rows.first_token + rows.rows.shape[0] <= batch.num_tokens,
            "embedding_rows ", rows.rows, " from token ", rows.first_token,
            ": expected rows of images within ", batch.num_tokens, " tokens");
  require(std::ssize(input.logit_rows) <= batch.num_tokens, "logit_rows: ", input.logit_rows.size(),
          " for a batch of ", batch.num_tokens, " tokens");
}

kernels::OpContext DecoderModel::context(Stream& stream) const {
  return {.stream = stream,
          .workspace = workspace_,
          .batch_invariant = placement_.batch_invariant,
          .rounds_x = placement_.rounds_x,
          .ranks = placement_.ranks};
}

void DecoderModel::embed(const ModelInput& input, View<const int32_t> positions, const TensorView& out,
                         Stream& stream) const {
  kernels::embed({.ids = input.token_ids, .table = embedding_, .scale = spec_.embedding_scale, .out = out},
                 context(stream));
  // A zero weight and an offset of 1 are a norm without weights.
  if (spec_.embedding_norm)
    kernels::rms_norm(out, zero_weight_.view(), spec_.norm_eps, out, stream, /*weight_offset=*/1.0f);
  if (!spec_.learned_positions) return;
  const LearnedPositions& learned = *spec_.learned_positions;
  kernels::add_embedding(positions, positions_.data.slice(0, learned.first_row, learned.num_rows), out,
                         stream);
  if (learned.num_token_types > 0) {
    const View<const int32_t> types =
        input.token_types.empty()
            ? View<const int32_t>(zero_types_.span<const int32_t>().first(positions.size()))
            : input.token_types;
    kernels::add_embedding(types, token_types_.data, out, stream);
  }
  if (!learned.norm) return;
  kernels::layer_norm(out, embedding_norm_.weight, embedding_norm_.bias, embedding_norm_.eps, out, stream);
}

void DecoderModel::write_stream(const HiddenOutput& output, size_t index, const kernels::OpContext& context) {
  const int64_t begin = static_cast<int64_t>(index) * spec_.hidden_size;
  kernels::read(*residual_, {}, output.out.slice(1, begin, begin + spec_.hidden_size), context);
}

void DecoderModel::forward(const ModelInput& input, const ForwardBatch& batch, AttentionBackend& attention,
                           const TensorView& logits, Stream& stream) {
  check(input, batch);
  if (batch.num_tokens == 0) return;
  kernels::Residual& residual = residual_.emplace(stream_memory_.first(batch.num_tokens));
  Scratch scratch(scratch_, batch.num_tokens, limits_.max_tokens, placement_.dtype);
  for (size_t i = 0; i < ropes_.size(); ++i)
    rope_rows_[i] = ropes_[i].rows(batch, input.prompt_lens, stream, input.rope_positions);

  kernels::OpContext operations = context(stream);
  operations.adapters = input.adapters;
  TensorView joined;
  if (draft_input_) {
    Scratch memory(draft_memory_, batch.num_tokens, limits_.max_tokens, placement_.dtype);
    joined = draft_input_->forward({.token_ids = input.token_ids,
                                    .positions = batch.positions,
                                    .hidden_states = input.hidden_states,
                                    .source = input.hidden_source},
                                   embedding_, memory, residual, operations);
  } else {
    embed(input, batch.positions, residual.sum(), stream);
  }
  for (const EmbeddingRows& rows : input.embedding_rows)
    kernels::copy_rows(rows.rows.slice(1, 0, spec_.hidden_size),
                       residual.sum().slice(0, rows.first_token, rows.first_token + rows.rows.shape[0]),
                       stream);
  TensorView layer_embeddings;
  if (layer_embeddings_) {
    layer_embeddings = layer_vectors_[0].slice(0, 0, batch.num_tokens);
    layer_embeddings_->compute(input.token_ids, residual.sum(),
                               layer_vectors_[1].slice(0, 0, batch.num_tokens), layer_embeddings, operations);
  }
  ModuleStep step{.residual = residual,
                  .batch = batch,
                  .attention = attention,
                  .ropes = rope_rows_,
                  .scratch = scratch,
                  .context = operations,
                  .layer_embeddings = layer_embeddings,
                  .states = input.states,
                  .recurrent = {.rows = input.state_rows.empty() ? raw(batch.request_rows) : input.state_rows,
                                .seqlen_kv = batch.seqlen_kv,
                                .cu_seqlen_q = batch.cu_seqlen_q,
                                .load_slots = input.state_load_slots,
                                .save_slots = input.state_save_slots,
                                .batch_invariant = placement_.batch_invariant},
                  .verified_tokens = input.verified_tokens,
                  .kept = {},
                  .joined = joined};
  const HiddenOutput& hidden = input.hidden;
  size_t num_read = 0;
  for (size_t i = 0; i < modules_.size(); ++i) {
    while (num_read < hidden.before_layers.size() && hidden.before_layers[num_read] <= module_layers_[i])
      write_stream(hidden, num_read++, operations);
    const kernels::Norm& next = i + 1 < modules_.size() ? modules_[i + 1]->input_norm() : final_norm_;
    const bool is_parallel = parallel(i);
    if (is_parallel) kernels::prepare(residual, next, operations);
    residual.expect(is_parallel ? kernels::Norm() : next);
    scratch.reset();
    step.kept = kept_[i];
    modules_[i]->forward(step);
    if (!is_parallel) residual.drop_prepared();
    const bool ends_layer = i + 1 == modules_.size() || module_layers_[i + 1] != module_layers_[i];
    if (ends_layer) add_deepstack(input, module_layers_[i], operations);
  }
  while (num_read < hidden.before_layers.size()) write_stream(hidden, num_read++, operations);
  if (hidden.before_layers.empty() && !hidden.out.empty())
    kernels::read(residual, final_norm_, hidden.out, operations);
  if (input.logit_rows.empty()) return;
  const bool all = !input.any_logit_rows && std::ssize(input.logit_rows) == batch.num_tokens;
  write_logits(std::ssize(input.logit_rows), all ? View<const int32_t>() : input.logit_rows, logits, stream);
}

void DecoderModel::add_deepstack(const ModelInput& input, int layer, const kernels::OpContext& context) {
  if (!spec_.vision || layer >= std::ssize(spec_.vision->deepstack_layers)) return;
  const int64_t begin = int64_t{1 + layer} * spec_.hidden_size;
  for (const EmbeddingRows& rows : input.embedding_rows)
    kernels::add_rows(*residual_, rows.first_token, rows.rows.slice(1, begin, begin + spec_.hidden_size),
                      context);
}

bool DecoderModel::parallel(size_t module) const {
  return module + 1 < modules_.size() && module_layers_[module] == module_layers_[module + 1] &&
         spec_.layers[static_cast<size_t>(module_layers_[module])].norms.parallel;
}

void DecoderModel::replay(const StateReplay& replay, Stream& stream) {
  ensure(replay.num_tokens <= limits_.max_verified_tokens(), "replay of ", replay.num_tokens,
         " tokens: at most ", limits_.max_verified_tokens(), " are kept");
  Scratch scratch(scratch_, replay.num_tokens, limits_.max_tokens, placement_.dtype);
  kernels::RecurrentBatch batch = replay.batch;
  batch.batch_invariant = placement_.batch_invariant;
  for (size_t i = 0; i < modules_.size(); ++i) {
    if (kept_[i].empty()) continue;
    scratch.reset();
    ReplayStep step{.kept = kept_[i].slice(0, 0, replay.num_tokens),
                    .scratch = scratch,
                    .stream = stream,
                    .states = replay.states,
                    .batch = batch};
    modules_[i]->replay(step);
  }
}

void DecoderModel::head(View<const int32_t> rows, const TensorView& logits, Stream& stream) {
  ensure(residual_.has_value(), "head() of a model before forward()");
  write_logits(std::ssize(rows), rows, logits, stream);
}

void DecoderModel::write_logits(int64_t num_rows, View<const int32_t> rows, const TensorView& logits,
                                Stream& stream) {
  require(logits.dtype == DType::kF32 && logits.rank == 2 && logits.shape[0] == num_rows &&
              logits.shape[1] == spec_.head_size(),
          "logits ", logits, ": expected float32[", num_rows, ", ", spec_.head_size(), "]");
  kernels::head(*residual_,
                {.norm = final_norm_,
                 .linear = head_,
                 .rows = rows,
                 .logit_cap = spec_.final_logit_cap,
                 .bounds = head_bounds_,
                 .out = logits},
                context(stream));
}

}  // namespace attend
