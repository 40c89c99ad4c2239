#include "attend/engine/bidirectional_attention.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/math.h"

namespace attend {
namespace {

constexpr int kAllTokens = -1;
constexpr int kWordBits = 64;

// Sets bits first .. end - 1.
void set_bits(View<uint64_t> words, int first, int end) {
  for (int bit = first; bit < end; ++bit)
    words[static_cast<size_t>(bit / kWordBits)] |= uint64_t{1} << (bit % kWordBits);
}

void fill_mask(const ForwardBatch& batch, int window, std::vector<uint64_t>& mask) {
  const auto words = static_cast<size_t>(ceil_div(batch.max_seqlen_q, kWordBits));
  mask.assign(static_cast<size_t>(batch.num_tokens) * words, 0);
  for (size_t r = 0; r < batch.seqlen_kv.size(); ++r) {
    const int begin = batch.cu_seqlen_q[r], length = batch.cu_seqlen_q[r + 1] - begin;
    require(batch.seqlen_kv[r] == length, "request ", r, " of ", batch.seqlen_kv[r], " tokens, ", length,
            " of them new: attention in both directions takes them all at once");
    for (int j = 0; j < length; ++j) {
      const View<uint64_t> row(mask.data() + static_cast<size_t>(begin + j) * words, words);
      const bool all = window == kAllTokens;
      set_bits(row, all ? 0 : std::max(0, j - window), all ? length : std::min(length, j + window + 1));
    }
  }
}

}  // namespace

ModelGeometry without_windows(const ModelGeometry& model) {
  ModelGeometry plain = model;
  for (AttentionLayer& layer : plain.layers) layer.window_left = -1;
  return plain;
}

BidirectionalAttention::BidirectionalAttention(std::unique_ptr<AttentionBackend> inner,
                                               const ModelGeometry& model)
    : inner_(std::move(inner)) {
  for (const AttentionLayer& layer : model.layers) masks_[layer.window_left] = {};
}

void BidirectionalAttention::plan(const ForwardBatch& batch, Stream& stream) {
  for (auto& [window, mask] : masks_) fill_mask(batch, window, mask);
  // Work depends on the lengths alone: every new token may be seen by every other.
  ForwardBatch masked = batch;
  masked.tree_mask = masks_.begin()->second;
  inner_->plan(masked, stream);
}

KvDestination BidirectionalAttention::destination(const AttentionLayer& layer, const ForwardBatch& batch) {
  return inner_->destination(layer, batch);
}

void BidirectionalAttention::forward(const AttentionLayer& layer, const AttentionInput& input,
                                     const ForwardBatch& batch, Stream& stream) {
  AttentionLayer plain = layer;
  plain.window_left = -1;
  ForwardBatch masked = batch;
  masked.tree_mask = masks_.at(layer.window_left);
  inner_->forward(plain, input, masked, stream);
}

}  // namespace attend
