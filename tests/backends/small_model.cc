#include "tests/backends/small_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "attend/attention/resolver.h"
#include "attend/backends/table.h"
#include "attend/kernels/attention/attention.h"
#include "tests/kernels/conformance/cases/random.h"

namespace attend::conformance {
namespace {

void fill_normal(const Tensor& tensor, Random random) {
  for (float& value : tensor.span<float>()) value = random.normal();
}

int sum(const std::vector<int>& values) { return std::accumulate(values.begin(), values.end(), 0); }

}  // namespace

PerLayerPool::PerLayerPool(const std::vector<AttentionLayer>& layers, int page_size, int num_pages,
                           bool halves)
    : KvPool(page_size, num_pages, DType::kF32) {
  for (const AttentionLayer& layer : layers) {
    pools_.emplace_back(MhaKvPool::Config{.num_layers = 1,
                                          .num_kv_heads = layer.num_kv_heads,
                                          .head_dim_qk = layer.head_dim_qk,
                                          .head_dim_v = layer.head_dim_v,
                                          .page_size = page_size,
                                          .num_pages = num_pages,
                                          .dtype = DType::kF32,
                                          .scales = {}});
    mapped_.push_back(halves && layer.window_left >= 0);
  }
  for (int slot = 0; slot < num_slots(); ++slot) {
    const int page = slot / page_size;
    slot_map_.push_back((page == 0 ? 0 : num_pages - page) * page_size + slot % page_size);
  }
}

LayerKv PerLayerPool::layer(int layer_id) const {
  LayerKv kv = pools_.at(static_cast<size_t>(layer_id)).layer(0);
  if (mapped_[static_cast<size_t>(layer_id)]) kv.slot_map = slot_map_.data();
  return kv;
}

TensorView PerLayerPool::latent(int) const { fail(ErrorCode::kUnsupported, "no latent rows"); }

size_t PerLayerPool::bytes_per_token() const {
  size_t bytes = 0;
  for (const MhaKvPool& pool : pools_) bytes += pool.bytes_per_token();
  return bytes;
}

SmallModel::SmallModel(std::vector<AttentionLayer> layers, std::vector<int> lengths, int page_size,
                       bool halves)
    : model_{.layers = std::move(layers), .max_context_len = std::ranges::max(lengths)},
      lengths_(std::move(lengths)),
      done_(lengths_.size(), 0),
      requests_(static_cast<int>(lengths_.size()), model_.max_context_len) {
  int num_pages = 3;
  for (int length : lengths_) num_pages += length / page_size + 1;
  pool_ = std::make_unique<PerLayerPool>(model_.layers, page_size, num_pages, halves);
  allocator_ = make_allocator(page_size, num_pages);
  for (size_t i = 0; i < lengths_.size(); ++i) rows_.push_back(*requests_.allocate());
  for (const AttentionLayer& layer : model_.layers) {
    const auto seed = static_cast<uint64_t>(layer.layer_id) * 100;
    batch_.push_back(make_tokens(layer, sum(lengths_), 0));
    sequences_.emplace_back();
    for (size_t i = 0; i < lengths_.size(); ++i)
      sequences_.back().push_back(make_tokens(layer, lengths_[i], seed + i));
  }
}

SmallModel::Tokens SmallModel::make_tokens(const AttentionLayer& layer, int64_t num_tokens,
                                           uint64_t seed) const {
  const Tokens tokens{.q = Tensor::zeros({num_tokens, layer.num_q_heads, layer.head_dim_qk}, DType::kF32),
                      .k = Tensor::zeros({num_tokens, layer.num_kv_heads, layer.head_dim_qk}, DType::kF32),
                      .v = Tensor::zeros({num_tokens, layer.num_kv_heads, layer.head_dim_v}, DType::kF32),
                      .out = Tensor::zeros({num_tokens, layer.num_q_heads, layer.head_dim_v}, DType::kF32)};
  fill_normal(tokens.q, Random(seed, 0));
  fill_normal(tokens.k, Random(seed, 1));
  fill_normal(tokens.v, Random(seed, 2));
  return tokens;
}

BackendConfig SmallModel::config(bool deterministic) const {
  return {.device = {},
          .model = model_,
          .limits = {.max_reqs = static_cast<int>(lengths_.size()),
                     .max_tokens = sum(lengths_),
                     .max_kv_tokens = sum(lengths_)},
          .page_size = pool_->page_size(),
          .deterministic = deterministic};
}

std::unique_ptr<AttentionBackend> SmallModel::create(std::string_view backend) const {
  const BackendEntry* entry = find_backend(backend_table(), backend);
  require(entry != nullptr, "no backend ", backend);
  return entry->create(context());
}

const StepArrays& SmallModel::prepare(ForwardMode mode, const std::vector<int>& num_new) {
  before_ = done_;
  step_.mode = mode;
  step_.max_seqlen_q = std::ranges::max(num_new);
  step_.request_rows.clear();
  step_.seqlen_kv.clear();
  step_.cu_seqlen_q = {0};
  step_.positions.clear();
  step_.out_slots.clear();
  for (size_t i = 0; i < num_new.size(); ++i) {
    if (num_new[i] == 0) continue;
    const int32_t prefix[] = {done_[i]}, grown[] = {done_[i] + num_new[i]};
    const TokenSlot last[] = {done_[i] == 0 ? kNoSlot
                                            : requests_.row(rows_[i])[static_cast<size_t>(done_[i]) - 1]};
    std::vector<TokenSlot> slots(static_cast<size_t>(num_new[i]));
    ensure(allocator_->alloc_extend(prefix, grown, last, slots), "the pool is full");
    requests_.write(rows_[i], done_[i], slots);
    step_.request_rows.push_back(rows_[i]);
    step_.seqlen_kv.push_back(grown[0]);
    step_.cu_seqlen_q.push_back(step_.cu_seqlen_q.back() + num_new[i]);
    for (int j = 0; j < num_new[i]; ++j) step_.positions.push_back(done_[i] + j);
    step_.out_slots.insert(step_.out_slots.end(), slots.begin(), slots.end());
    done_[i] = grown[0];
  }
  for (size_t layer_idx = 0; layer_idx < batch_.size(); ++layer_idx) gather(layer_idx);
  return step_;
}

void SmallModel::run(AttentionBackend& backend) {
  Stream stream;
  const ForwardBatch batch = step_.batch();
  backend.plan(batch, stream);
  for (size_t i = 0; i < model_.layers.size(); ++i)
    attend_layer(backend, model_.layers[i], input(i), batch, stream);
  for (size_t i = 0; i < model_.layers.size(); ++i) scatter(i);
}

LayerInput SmallModel::input(size_t layer_idx) const {
  const auto used = [&](const Tensor& tensor) {
    return tensor.view().slice(0, 0, static_cast<int64_t>(step_.out_slots.size()));
  };
  const Tokens& tokens = batch_[layer_idx];
  return {.attend = {.q = used(tokens.q), .out = used(tokens.out)}, .k = used(tokens.k), .v = used(tokens.v)};
}

void SmallModel::gather(size_t layer_idx) {
  int64_t token = 0;
  for (size_t i = 0; i < done_.size(); ++i) {
    const Tokens& sequence = sequences_[layer_idx][i];
    for (int p = before_[i]; p < done_[i]; ++p, ++token)
      for (const auto& [from, to] : {std::pair{&sequence.q, &batch_[layer_idx].q},
                                     {&sequence.k, &batch_[layer_idx].k},
                                     {&sequence.v, &batch_[layer_idx].v}})
        std::memcpy(to->view()[token].data, from->view()[p].data, to->view()[token].num_bytes());
  }
}

void SmallModel::scatter(size_t layer_idx) {
  int64_t token = 0;
  for (size_t i = 0; i < done_.size(); ++i)
    for (int p = before_[i]; p < done_[i]; ++p, ++token) {
      const TensorView row = batch_[layer_idx].out.view()[token];
      std::memcpy(sequences_[layer_idx][i].out.view()[p].data, row.data, row.num_bytes());
    }
}

void SmallModel::expect_reference_results() const {
  for (size_t layer_idx = 0; layer_idx < model_.layers.size(); ++layer_idx)
    for (size_t i = 0; i < lengths_.size(); ++i) {
      const AttentionLayer& layer = model_.layers[layer_idx];
      const Tokens& sequence = sequences_[layer_idx][i];
      const int32_t cu_seqlen[] = {0, lengths_[i]}, seqlen[] = {lengths_[i]};
      const auto as_page = [&](const Tensor& tensor) {  // one page per token, like contiguous K/V
        return tensor.view().reshape({lengths_[i], 1, tensor.shape(1), tensor.shape(2)});
      };
      const kernels::AttentionArgs args{
          .q = sequence.q,
          .out = sequence.out,
          .lse = {},
          .kv = {.k = as_page(sequence.k),
                 .v = as_page(sequence.v),
                 .index = {.kind = kernels::KvIndexKind::kContiguous, .indptr = cu_seqlen}},
          .batch = {.cu_seqlen_q = cu_seqlen,
                    .seqlen_kv = seqlen,
                    .max_seqlen_q = lengths_[i],
                    .tree_mask = {},
                    .tree_mask_words = 0,
                    .positions = {}},
          .attention_mask = layer.attention_mask(),
          .score = {.scale = layer.scale, .logit_cap = layer.logit_cap, .sinks = layer.sinks}};
      EXPECT_EQ(done_[i], lengths_[i]) << "sequence " << i << " is not complete";
      const auto wrong = mismatch(expect(args), sequence.out, {});
      EXPECT_FALSE(wrong) << "layer " << layer_idx << ", sequence " << i << ": " << *wrong;
    }
}

}  // namespace attend::conformance
