#include "tests/backends/backend_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "attend/base/math.h"
#include "attend/kernels/common/element.h"
#include "attend/kernels/kv_store/store.h"
#include "tests/kernels/conformance/cases/built_case.h"
#include "tests/kernels/conformance/cases/poison.h"
#include "tests/kernels/conformance/cases/random.h"

namespace attend::conformance {
namespace {

constexpr int64_t kGap = 16;
constexpr int kLayerId = 1;  // of two layers

// Calls fn with the bytes of every row (last dimension) of a view, in the order of indices.
template <class Fn>
void for_each_row(const TensorView& view, const Fn& fn) {
  if (view.rank == 1) {
    fn(static_cast<unsigned char*>(view.data), static_cast<size_t>(view.shape[0]) * size_of(view.dtype));
    return;
  }
  for (int64_t i = 0; i < view.shape[0]; ++i) for_each_row(view[i], fn);
}

std::vector<unsigned char> bytes_of(const TensorView& view) {
  std::vector<unsigned char> bytes;
  if (view.empty()) return bytes;
  for_each_row(view,
               [&](const unsigned char* row, size_t size) { bytes.insert(bytes.end(), row, row + size); });
  return bytes;
}

// Returns true if the storage contains poison everywhere except in the view.
bool only_view_written(const Tensor& storage, const TensorView& view) {
  if (view.empty()) return true;
  const auto* start = static_cast<const unsigned char*>(storage.view().data);
  std::vector<unsigned char> left(start, start + storage.view().num_bytes());
  for_each_row(view, [&](const unsigned char* row, size_t size) {
    std::fill_n(left.begin() + (row - start), size, kPoisonByte);
  });
  return std::ranges::all_of(left, [](unsigned char byte) { return byte == kPoisonByte; });
}

AttentionType attention_type(const AttentionCase& c) {
  if (c.causal) return AttentionType::kDecoder;
  const bool new_tokens_are_keys =
      std::ranges::all_of(c.requests, [](const Lengths& l) { return l.seqlen_q <= l.seqlen_kv; });
  return new_tokens_are_keys ? AttentionType::kDecoderBidirectional : AttentionType::kCross;
}

// Two layers with the case's heads. The first one has none of the case's features.
ModelGeometry make_model(const AttentionCase& c, View<const float> sinks, int max_context_len) {
  const AttentionLayer plain{.layer_id = 0,
                             .num_q_heads = c.num_q_heads,
                             .num_kv_heads = c.num_kv_heads,
                             .head_dim_qk = c.head_dim_qk,
                             .head_dim_v = c.head_dim_v,
                             .rope_dim = c.rope_dim,
                             .kind = c.is_mla() ? KvKind::kMla : KvKind::kMha};
  AttentionLayer layer = plain;
  layer.layer_id = kLayerId;
  layer.type = attention_type(c);
  layer.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim_qk));
  layer.logit_cap = c.logit_cap;
  layer.window_left = c.window_left;
  layer.window_right = c.window_right == std::numeric_limits<int32_t>::max() ? -1 : c.window_right;
  layer.chunk = c.chunk;
  layer.sinks = sinks;
  return {.layers = {plain, layer},
          .dtype = c.q_dtype,
          .kv_dtype = c.kv_dtype,
          .max_context_len = max_context_len};
}

}  // namespace

Requirement requirement_of_case(const AttentionCase& c, ForwardMode mode, bool deterministic) {
  const std::vector<float> sinks(c.sinks ? static_cast<size_t>(c.num_q_heads) : 0);
  Requirement needs = make_requirement(make_model(c, sinks, 0));
  needs.kv_scales = c.k_scale != 1.0f || c.v_scale != 1.0f;
  if (mode == ForwardMode::kTargetVerify || mode == ForwardMode::kDraftExtend)
    needs.speculation = Speculation::kChain;
  if (c.tree == TreeShape::kTree) needs.speculation = Speculation::kTree;
  needs.deterministic = deterministic;
  return needs;
}

bool is_valid_step(const AttentionCase& c) {
  return !c.causal ||
         std::ranges::all_of(c.requests, [](const Lengths& l) { return l.seqlen_q <= l.seqlen_kv; });
}

AttentionCase without_backend_choices(AttentionCase c) {
  c.index = kernels::KvIndexKind::kRequestRows;
  c.slot_map = false;
  c.split_rule = kernels::SplitRule::kNone;
  c.split_tokens = AttentionCase().split_tokens;
  c.num_workers = 0;
  return c;
}

Expected expected_result(const AttentionCase& c) {
  const BuiltCase built(c);
  return c.is_mla() ? expect(built.mla_args) : expect(built.args);
}

ForwardBatch StepArrays::batch() const {
  return {.mode = mode,
          .num_reqs = static_cast<int>(request_rows.size()),
          .num_tokens = static_cast<int>(out_slots.size()),
          .max_seqlen_q = max_seqlen_q,
          .request_rows = request_rows,
          .seqlen_kv = seqlen_kv,
          .cu_seqlen_q = cu_seqlen_q,
          .positions = positions,
          .out_slots = out_slots,
          .tree_mask = tree_mask,
          .prefix_ready = true};
}

BackendCase::BackendCase(const AttentionCase& c, ForwardMode mode, Device device)
    : spec_(c), tokens_(c), index_(c, tokens_), device_(device) {
  ensure(is_valid_step(c), "not a step: ", c);
  const CaseValues values(c);
  q_values_ = values.q;
  k_values_ = values.k;
  v_values_ = values.v;
  sinks_ = values.sinks;
  cu_seqlen_kv_ = values.cu_seqlen_kv;
  int longest = 1;
  for (int32_t seqlen : tokens_.seqlen_kv) longest = std::max(longest, seqlen);
  model_ = make_model(c, sinks_, longest);
  pool_ = make_pool({});
  make_request_rows();
  make_step(mode);
  make_input();
  poison_pool();
  store_prefix();
  pool_before_ = pool_bytes();
  if (device_.type == DeviceType::kCpu) return;
  on_gpu_ = std::make_unique<DeviceStep>(make_pool(device_), *requests_, sinks_, device_);
  if (spec_.sinks) model_.layers[kLayerId].sinks = on_gpu_->sinks();
}

std::unique_ptr<KvPool> BackendCase::make_pool(Device device) const {
  if (spec_.is_mla())
    return std::make_unique<MlaKvPool>(MlaKvPool::Config{.num_layers = 2,
                                                         .kv_lora_rank = spec_.head_dim_v,
                                                         .rope_dim = spec_.rope_dim,
                                                         .page_size = spec_.page_size,
                                                         .num_pages = index_.num_pages,
                                                         .dtype = spec_.kv_dtype,
                                                         .device = device,
                                                         .scales = {1.0f, spec_.k_scale}});
  return std::make_unique<MhaKvPool>(
      MhaKvPool::Config{.num_layers = 2,
                        .num_kv_heads = spec_.num_kv_heads,
                        .head_dim_qk = spec_.head_dim_qk,
                        .head_dim_v = spec_.head_dim_v,
                        .page_size = spec_.page_size,
                        .num_pages = index_.num_pages,
                        .dtype = spec_.kv_dtype,
                        .layout = spec_.layout,
                        .device = device,
                        .scales = {{}, {.k = spec_.k_scale, .v = spec_.v_scale}}});
}

void BackendCase::make_request_rows() {
  constexpr int kSpareRows = 3, kSparePositions = 5;
  const auto num_real = static_cast<int>(spec_.requests.size());
  const int context = model_.max_context_len + kSparePositions;
  requests_ = std::make_unique<ReqToTokenPool>(num_real + kSpareRows, context);
  for (int i = 0; i < num_real + kSpareRows; ++i) rows_.push_back(*requests_->allocate());
  Random(spec_.seed, /*stream=*/20).shuffle(rows_);
  rows_.resize(static_cast<size_t>(num_real));
  // Everything except the padding row is poisoned until it is written.
  auto* table = requests_->table().as<int32_t>();
  std::fill_n(table + requests_->table().strides[0], int64_t{num_real + kSpareRows} * context, kHugeId);
  for (int r = 0; r < num_real; ++r) {
    std::vector<TokenSlot> slots;
    for (int32_t p = 0; p < tokens_.seqlen_kv[static_cast<size_t>(r)]; ++p)
      slots.emplace_back(index_.slot(r, p));
    requests_->write(rows_[static_cast<size_t>(r)], 0, slots);
  }
  rows_.resize(static_cast<size_t>(spec_.num_reqs()), kPaddingRow);
}

void BackendCase::make_step(ForwardMode mode) {
  step_.mode = mode;
  step_.max_seqlen_q = spec_.max_seqlen_q();
  step_.request_rows.reserve(1);  // as in a runner, arrays have an address even in a step without requests
  step_.request_rows.assign(rows_.begin(), rows_.end());
  step_.seqlen_kv = tokens_.seqlen_kv;
  step_.cu_seqlen_q = tokens_.cu_seqlen_q;
  step_.positions = tokens_.positions;
  step_.tree_mask = tokens_.tree_mask;
  step_.out_slots.assign(static_cast<size_t>(spec_.num_tokens()), kNoSlot);
  for (int r = 0; r < static_cast<int>(spec_.requests.size()); ++r) {
    const auto& [seqlen_q, seqlen_kv] = spec_.requests[static_cast<size_t>(r)];
    const int32_t first = tokens_.cu_seqlen_q[static_cast<size_t>(r)];
    for (int j = 0; j < seqlen_q && layer().type != AttentionType::kCross; ++j)
      step_.out_slots[static_cast<size_t>(first + j)] = TokenSlot(index_.slot(r, seqlen_kv - seqlen_q + j));
  }
}

BackendCase::Rows BackendCase::make_rows(int64_t num_heads, int64_t head_dim, DType dtype) const {
  const int64_t gap = spec_.strided ? kGap : 0, extra_head = spec_.strided ? 1 : 0;
  Rows rows;
  rows.storage = Tensor::empty({spec_.num_tokens(), num_heads + extra_head, head_dim + gap}, dtype);
  conformance::poison(rows.storage);
  rows.view = rows.storage.view().slice(1, 0, num_heads).slice(2, 0, head_dim);
  return rows;
}

void BackendCase::make_input() {
  const auto set_row = [](const TensorView& row, const float* values) {  // row: [heads, dim]
    for (int64_t head = 0; head < row.shape[0]; ++head)
      for (int64_t d = 0; d < row.shape[1]; ++d)
        kernels::reference::store(row, kernels::reference::offset(row, head, d), *values++);
  };
  q_ = make_rows(spec_.num_q_heads, spec_.head_dim_qk, spec_.q_dtype);
  k_ = make_rows(spec_.num_kv_heads, spec_.head_dim_qk, spec_.q_dtype);
  v_ = make_rows(spec_.num_kv_heads, spec_.head_dim_v, spec_.q_dtype);
  out_ = make_rows(spec_.num_q_heads, spec_.head_dim_v, spec_.out_dtype);
  if (spec_.lse) {
    lse_ = make_rows(1, spec_.num_q_heads, DType::kF32);
    lse_.view.rank = 2;  // [num_tokens, num_q_heads]
    lse_.view.shape[1] = lse_.view.shape[2];
    lse_.view.strides[1] = lse_.view.strides[2];
  }
  const int64_t q_row = q_.view.shape[1] * q_.view.shape[2], k_row = k_.view.shape[1] * k_.view.shape[2],
                v_row = v_.view.shape[1] * v_.view.shape[2];
  for (int64_t token = 0; token < spec_.num_tokens(); ++token)
    set_row(q_.view[token], q_values_.data() + token * q_row);
  // K and V of padding tokens stay poisoned, since they are not stored.
  for (size_t r = 0; r < spec_.requests.size(); ++r) {
    const auto& [seqlen_q, seqlen_kv] = spec_.requests[r];
    if (layer().type == AttentionType::kCross) break;
    for (int j = 0; j < seqlen_q; ++j) {
      const int64_t from = cu_seqlen_kv_[r] + seqlen_kv - seqlen_q + j, token = tokens_.cu_seqlen_q[r] + j;
      set_row(k_.view[token], k_values_.data() + from * k_row);
      set_row(v_.view[token], v_values_.data() + from * v_row);
    }
  }
}

LayerInput BackendCase::input() const {
  LayerInput input{.attend = {.q = q_.view, .q_rope = {}, .out = out_.view, .lse = lse_.view},
                   .k = k_.view,
                   .v = v_.view,
                   .k_rope = {}};
  if (layer().type == AttentionType::kCross) input.k = input.v = {};  // stored by an earlier step
  if (!spec_.is_mla()) return input;
  const auto part = [](const Rows& rows, int64_t begin, int64_t end) {
    return rows.view.slice(2, begin, end);
  };
  const auto one_head = [](TensorView view) {  // [num_tokens, 1, dim] as [num_tokens, dim]
    view.rank = 2;
    view.shape[1] = view.shape[2];
    view.strides[1] = view.strides[2];
    return view;
  };
  input.attend.q = part(q_, 0, spec_.head_dim_v);
  input.attend.q_rope = part(q_, spec_.head_dim_v, spec_.head_dim_qk);
  input.k = one_head(part(k_, 0, spec_.head_dim_v));
  input.k_rope = one_head(part(k_, spec_.head_dim_v, spec_.head_dim_qk));
  input.v = {};
  return input;
}

void BackendCase::poison_pool() {
  for (int layer_id : {0, kLayerId}) {
    const LayerKv kv = pool_->layer(layer_id);
    for (const TensorView& pages : {kv.k, kv.v}) {
      const TensorView usable = pages.slice(0, 1, pages.shape[0]);
      for_each_row(usable, [](unsigned char* row, size_t size) { std::memset(row, kPoisonByte, size); });
    }
  }
}

void BackendCase::store_prefix() {
  const LayerKv kv = pool_->layer(kLayerId);
  const int64_t k_row = int64_t{spec_.num_kv_heads} * spec_.head_dim_qk;
  const int64_t v_row = int64_t{spec_.num_kv_heads} * spec_.head_dim_v;
  for (int r = 0; r < static_cast<int>(spec_.requests.size()); ++r) {
    const auto& [seqlen_q, seqlen_kv] = spec_.requests[static_cast<size_t>(r)];
    const bool cross = layer().type == AttentionType::kCross;
    const PositionRange visible = unmasked_range(spec_, tokens_, r);
    for (int32_t p = visible.first; p < (cross ? seqlen_kv : seqlen_kv - seqlen_q); ++p) {
      const int64_t row = cu_seqlen_kv_[static_cast<size_t>(r)] + p;
      float* k = k_values_.data() + row * k_row;
      float* v = v_values_.data() + row * v_row;
      const int32_t slot[] = {index_.slot(r, p)};
      if (spec_.is_mla())
        kernels::reference::store_mla(
            {.latent = TensorView::contiguous(k, DType::kF32, {1, spec_.head_dim_v}),
             .rope = TensorView::contiguous(k + spec_.head_dim_v, DType::kF32, {1, spec_.rope_dim}),
             .to = {.k = pool_->latent(kLayerId), .slots = slot, .k_scale = spec_.k_scale}});
      else
        kernels::reference::store_kv(
            {.k = TensorView::contiguous(k, DType::kF32, {1, spec_.num_kv_heads, spec_.head_dim_qk}),
             .v = TensorView::contiguous(v, DType::kF32, {1, spec_.num_kv_heads, spec_.head_dim_v}),
             .to = {
                 .k = kv.k, .v = kv.v, .slots = slot, .k_scale = spec_.k_scale, .v_scale = spec_.v_scale}});
    }
  }
}

BackendConfig BackendCase::config(bool deterministic) const {
  return {.device = device_,
          .model = model_,
          .limits = {.max_reqs = std::max(1, spec_.num_reqs()),
                     .max_tokens = std::max(1, spec_.num_tokens()),
                     .max_kv_tokens = std::max<int64_t>(1, spec_.num_kv_tokens())},
          .page_size = spec_.page_size,
          .deterministic = deterministic};
}

std::unique_ptr<AttentionBackend> BackendCase::create(const BackendEntry& entry, bool deterministic) const {
  BackendConfig config = this->config(deterministic);
  // Selects all keys.
  if (entry.mla.indexer)
    for (AttentionLayer& layer : config.model.layers) layer.indexer.top_k = 1 << 20;
  return entry.create({.config = config,
                       .request_table = on_gpu_ ? on_gpu_->request_table() : requests_->table(),
                       .pool = on_gpu_ ? on_gpu_->pool() : *pool_});
}

void BackendCase::run(AttentionBackend& backend) const { compute(backend, input(), step_); }

void BackendCase::compute(AttentionBackend& backend, const LayerInput& input, const StepArrays& step) const {
  const ForwardBatch batch = step.batch();
  if (on_gpu_) return on_gpu_->run(backend, layer(), input, batch, *pool_);
  Stream stream;
  backend.plan(batch, stream);
  attend_layer(backend, layer(), input, batch, stream);
}

std::vector<unsigned char> BackendCase::pool_bytes() const {
  const LayerKv kv = pool_->layer(kLayerId);
  std::vector<unsigned char> bytes = bytes_of(kv.k);
  const std::vector<unsigned char> v = bytes_of(kv.v);
  bytes.insert(bytes.end(), v.begin(), v.end());
  return bytes;
}

bool BackendCase::rest_of_pool_untouched() const {
  const LayerKv kv = pool_->layer(kLayerId);
  std::vector<bool> is_new(static_cast<size_t>(pool_->num_slots()), false);
  for (TokenSlot slot : step_.out_slots)
    if (slot != kNoSlot) is_new[static_cast<size_t>(slot.value)] = true;
  size_t at = 0;
  for (const TensorView& pages : {kv.k, kv.v})
    for (int slot = 0; slot < pool_->num_slots(); ++slot) {
      const TensorView token = pages[slot / pool_->page_size()][slot % pool_->page_size()];
      const std::vector<unsigned char> now = bytes_of(token);
      if (!is_new[static_cast<size_t>(slot)] &&
          !std::equal(now.begin(), now.end(), pool_before_.begin() + static_cast<std::ptrdiff_t>(at)))
        return false;
      at += now.size();
    }
  return true;
}

std::string BackendCase::problem(const Expected& expected) const {
  if (const auto wrong = mismatch(expected, out_.view, lse_.view)) return *wrong;
  if (!only_view_written(out_.storage, out_.view)) return "wrote between or around the outputs";
  if (spec_.lse && !only_view_written(lse_.storage, lse_.view)) return "wrote between or around the LSE";
  if (!rest_of_pool_untouched()) return "stored elsewhere than at the slots of the new tokens";
  return "";
}

bool BackendCase::part_agrees(AttentionBackend& backend, int request, int begin, int end) const {
  const auto r = static_cast<size_t>(request);
  const int seqlen_q = spec_.requests[r].seqlen_q;
  const int64_t first = tokens_.cu_seqlen_q[r] + begin, num_tokens = end - begin;
  const StepArrays part{
      .mode = num_tokens == 1 ? ForwardMode::kDecode : ForwardMode::kExtend,
      .max_seqlen_q = end - begin,
      .request_rows = {rows_[r]},
      .seqlen_kv = {tokens_.seqlen_kv[r] - (seqlen_q - end)},
      .cu_seqlen_q = {0, end - begin},
      .positions = {step_.positions.begin() + first, step_.positions.begin() + first + num_tokens},
      .out_slots = std::vector<TokenSlot>(static_cast<size_t>(num_tokens), kNoSlot),
      .tree_mask = {}};
  const Tensor out = Tensor::empty({num_tokens, spec_.num_q_heads, spec_.head_dim_v}, spec_.out_dtype);
  const AttentionInput whole = input().attend;
  AttentionInput attend{
      .q = whole.q.slice(0, first, first + num_tokens), .q_rope = {}, .out = out, .lse = {}};
  if (spec_.is_mla()) attend.q_rope = whole.q_rope.slice(0, first, first + num_tokens);
  compute(backend, {.attend = attend}, part);
  return bytes_of(out) == bytes_of(out_.view.slice(0, first, first + num_tokens));
}

std::vector<unsigned char> BackendCase::result_bytes() const {
  std::vector<unsigned char> bytes = bytes_of(out_.view);
  const std::vector<unsigned char> lse = bytes_of(lse_.view);
  bytes.insert(bytes.end(), lse.begin(), lse.end());
  return bytes;
}

void BackendCase::poison_results() {
  conformance::poison(out_.storage);
  conformance::poison(lse_.storage);
}

}  // namespace attend::conformance
