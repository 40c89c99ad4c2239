// One attention layer with your own weights and K/V memory, using only attend's kernels.
//
// Three sequences of different lengths decode together. Their K/V is in pages that are assigned in random
// order; a page table maps positions of sequences to pages. Every step is compared with independent plain
// loops.
#include <attend/kernels/attention/attention.h>
#include <attend/kernels/gemm/linear.h>
#include <attend/kernels/kv_store/store.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <random>
#include <vector>

namespace {

using namespace attend;

constexpr int kNumSequences = 3;
constexpr int kFirstLengths[kNumSequences] = {1, 15, 40};
constexpr int kNumSteps = 50;
constexpr int kMaxLength = 96;
constexpr int kHidden = 96;
constexpr int kNumQHeads = 8, kNumKvHeads = 2, kHeadDim = 64;
constexpr int kPageSize = 16;
constexpr int kPagesPerSequence = kMaxLength / kPageSize;
constexpr int kNumPages = kNumSequences * kPagesPerSequence;

using Floats = std::vector<float>;

Floats random_floats(size_t count, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, deviation);
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TensorView view(Floats& values, std::initializer_list<int64_t> shape) {
  return TensorView::contiguous(values.data(), DType::kF32, shape);
}

struct Weights {
  Floats q, k, v;  // [heads * kHeadDim, kHidden]
};

// K/V in pages, as in a serving engine.
struct PagedCache {
  Floats k = Floats(size_t{kNumPages} * kPageSize * kNumKvHeads * kHeadDim);
  Floats v = k;
  std::vector<int32_t> page_table = std::vector<int32_t>(kNumPages);  // [kNumSequences, kPagesPerSequence]

  explicit PagedCache(std::mt19937& random) {
    std::iota(page_table.begin(), page_table.end(), 0);
    std::shuffle(page_table.begin(), page_table.end(), random);
  }
  TensorView k_view() { return view(k, {kNumPages, kPageSize, kNumKvHeads, kHeadDim}); }
  TensorView v_view() { return view(v, {kNumPages, kPageSize, kNumKvHeads, kHeadDim}); }
  int32_t slot(int sequence, int position) const {
    const int page = page_table[static_cast<size_t>(sequence * kPagesPerSequence + position / kPageSize)];
    return page * kPageSize + position % kPageSize;
  }
  kernels::KvView kv() {
    return {.k = k_view(),
            .v = v_view(),
            .index = {.kind = kernels::KvIndexKind::kPageTable,
                      .page_size = kPageSize,
                      .table = page_table.data(),
                      .table_stride = kPagesPerSequence}};
  }
};

// K/V of a sequence so far, in order, for the plain loops.
struct History {
  std::vector<Floats> k, v;  // [position][kNumKvHeads * kHeadDim]
};

// Returns x W^T of one token.
Floats plain_projection(const float* x, const Floats& weight) {
  Floats out(weight.size() / kHidden);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(std::inner_product(x, x + kHidden, weight.data() + i * kHidden, 0.0));
  return out;
}

// Returns softmax(q k^T / sqrt(d)) v of one sequence's newest token, head by head.
Floats plain_attention(const Floats& q, const History& history) {
  Floats out(size_t{kNumQHeads} * kHeadDim, 0.0f);
  for (int h = 0; h < kNumQHeads; ++h) {
    const int first = h / (kNumQHeads / kNumKvHeads) * kHeadDim;  // of this head's K and V in a row
    std::vector<double> scores;
    for (const Floats& k : history.k)
      scores.push_back(
          std::inner_product(q.data() + h * kHeadDim, q.data() + (h + 1) * kHeadDim, k.data() + first, 0.0) /
          std::sqrt(static_cast<double>(kHeadDim)));
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (double& score : scores) sum += score = std::exp(score - largest);
    for (size_t position = 0; position < scores.size(); ++position)
      for (int d = 0; d < kHeadDim; ++d)
        out[static_cast<size_t>(h * kHeadDim + d)] +=
            static_cast<float>(scores[position] / sum * history.v[position][static_cast<size_t>(first + d)]);
  }
  return out;
}

class Decoder {
 public:
  explicit Decoder(std::mt19937& random)
      : weights_{.q = random_floats(size_t{kNumQHeads} * kHeadDim * kHidden, 0.2f, random),
                 .k = random_floats(size_t{kNumKvHeads} * kHeadDim * kHidden, 0.2f, random),
                 .v = random_floats(size_t{kNumKvHeads} * kHeadDim * kHidden, 0.2f, random)},
        cache_(random),
        plan_({.max_reqs = kNumSequences,
               .max_tokens = kNumSequences * kMaxLength,
               .max_kv_tokens = kNumSequences * kMaxLength,
               .num_q_heads = kNumQHeads,
               .num_kv_heads = kNumKvHeads,
               .head_dim_v = kHeadDim},
              Device{}) {}

  // Appends num_new[s] tokens to each sequence s and computes attention. x: [sum of num_new, kHidden],
  // sequences in order. Returns the largest difference from the plain loops.
  float step(Floats x, const std::vector<int>& num_new) {
    const int num_tokens = std::accumulate(num_new.begin(), num_new.end(), 0);
    Floats q = project(x, weights_.q, kNumQHeads), k = project(x, weights_.k, kNumKvHeads),
           v = project(x, weights_.v, kNumKvHeads);
    const TensorView q_view = view(q, {num_tokens, kNumQHeads, kHeadDim});
    const TensorView k_view = view(k, {num_tokens, kNumKvHeads, kHeadDim});
    const TensorView v_view = view(v, {num_tokens, kNumKvHeads, kHeadDim});

    std::vector<int32_t> slots, cu_seqlen_q{0};
    for (int s = 0; s < kNumSequences; ++s) {
      int32_t& length = lengths_[static_cast<size_t>(s)];
      for (int i = 0; i < num_new[static_cast<size_t>(s)]; ++i) slots.push_back(cache_.slot(s, length++));
      cu_seqlen_q.push_back(static_cast<int32_t>(slots.size()));
    }
    kernels::store_kv(
        {.k = k_view, .v = v_view, .to = {.k = cache_.k_view(), .v = cache_.v_view(), .slots = slots}},
        stream_);

    Floats out(q.size());
    const kernels::AttentionArgs args{
        .q = q_view,
        .out = view(out, {num_tokens, kNumQHeads, kHeadDim}),
        .lse = {},
        .kv = cache_.kv(),
        .batch = {.cu_seqlen_q = cu_seqlen_q,
                  .seqlen_kv = lengths_,
                  .max_seqlen_q = *std::max_element(num_new.begin(), num_new.end()),
                  .max_seqlen_kv = kMaxLength},
        .attention_mask = {.causal = true},
        .score = {.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim))}};
    plan_.plan(args.batch, args.attention_mask, stream_);  // once for all layers of a step
    kernels::attention(args, plan_, stream_);

    return difference(x, args.out, cu_seqlen_q);
  }

 private:
  // Returns x W^T: [num_tokens, num_heads * kHeadDim].
  Floats project(Floats& x, Floats& weight, int num_heads) {
    const auto num_tokens = static_cast<int64_t>(x.size()) / kHidden;
    Floats out(static_cast<size_t>(num_tokens * num_heads * kHeadDim));
    kernels::linear({.x = view(x, {num_tokens, kHidden}),
                     .weight = view(weight, {num_heads * kHeadDim, kHidden}),
                     .bias = {},
                     .out = view(out, {num_tokens, num_heads * kHeadDim})},
                    stream_);
    return out;
  }

  // Returns the largest difference of each sequence's newest token from the plain loops.
  float difference(const Floats& x, const TensorView& out, const std::vector<int32_t>& cu_seqlen_q) {
    float largest_error = 0.0f;
    for (int s = 0; s < kNumSequences; ++s) {
      const int begin = cu_seqlen_q[static_cast<size_t>(s)], end = cu_seqlen_q[static_cast<size_t>(s) + 1];
      History& history = histories_[static_cast<size_t>(s)];
      for (int token = begin; token < end; ++token) {
        history.k.push_back(plain_projection(x.data() + token * kHidden, weights_.k));
        history.v.push_back(plain_projection(x.data() + token * kHidden, weights_.v));
      }
      const Floats expected =
          plain_attention(plain_projection(x.data() + (end - 1) * kHidden, weights_.q), history);
      const float* got = out[end - 1].as<float>();
      for (size_t i = 0; i < expected.size(); ++i)
        largest_error = std::max(largest_error, std::abs(got[i] - expected[i]));
    }
    return largest_error;
  }

  Weights weights_;
  PagedCache cache_;
  kernels::AttentionPlan plan_;
  Stream stream_;
  std::vector<int32_t> lengths_ = std::vector<int32_t>(kNumSequences, 0);
  std::vector<History> histories_ = std::vector<History>(kNumSequences);
};

}  // namespace

int main() try {
  std::mt19937 random(1);
  Decoder decoder(random);
  std::vector<int> num_new(std::begin(kFirstLengths), std::end(kFirstLengths));
  float largest_error = 0.0f;
  for (int step = 0; step <= kNumSteps; ++step) {
    const int num_tokens = std::accumulate(num_new.begin(), num_new.end(), 0);
    Floats x = random_floats(static_cast<size_t>(num_tokens) * kHidden, 1.0f, random);
    largest_error = std::max(largest_error, decoder.step(std::move(x), num_new));
    num_new.assign(kNumSequences, 1);  // after the prompts: one token each
  }
  std::cout << "paged_decode: " << kNumSteps << " steps of " << kNumSequences
            << " sequences, largest difference from plain loops " << largest_error << "\n";
  return largest_error < 1e-4f ? 0 : 1;
} catch (const attend::Error& error) {
  std::cerr << "paged_decode: " << error.what() << "\n";
  return 2;
}
