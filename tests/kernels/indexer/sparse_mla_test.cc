// The selection of keys and sparse MLA on the CPU, compared with their float64 references.
#include "attend/kernels/indexer/sparse_mla.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attend/kernels/indexer/cpu/select_keys.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::error_message;

constexpr int kRank = 32, kRopeDim = 8, kNumQHeads = 3;

struct Request {
  int seqlen_kv, seqlen_q;
};

struct IndexCase {
  std::vector<Request> requests;
  int top_k = 16;
  int num_heads = 4, head_dim = 32;
  int page_size = 16;
  DType k_dtype = DType::kF32;
  int max_keys = 512;  // of the plan: more keys leave memory for the scores of fewer queries
  int num_padding = 0;
  bool batch_invariant = false;
  float logit_cap = 0.0f;
  bool sinks = false;
};

std::string to_string(const IndexCase& c) {
  std::string text = "requests";
  for (const Request& request : c.requests)
    text += " " + std::to_string(request.seqlen_kv) + "/" + std::to_string(request.seqlen_q);
  return text + ", top_k " + std::to_string(c.top_k) + ", " + std::to_string(c.num_heads) + " heads of " +
         std::to_string(c.head_dim) + ", pages of " + std::to_string(c.page_size) + ", " +
         std::string(attend::to_string(c.k_dtype)) + ", max_keys " + std::to_string(c.max_keys);
}

Tensor random_tensor(std::initializer_list<int64_t> shape, DType dtype, uint32_t seed) {
  const Tensor tensor = Tensor::zeros(shape, dtype);
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
    for (int64_t i = 0; i < tensor.view().num_elements(); ++i) tensor.as<T>()[i] = T(normal(generator));
  });
  return tensor;
}

// A step with shuffled pages. Table entries of other positions are invalid, unused slots hold NaN.
class IndexStep {
 public:
  explicit IndexStep(const IndexCase& c) : case_(c) {
    if (c.sinks) sinks_ = {0.5f, -1.0f, 2.0f};
    for (const Request& request : c.requests) {
      seqlen_kv.push_back(request.seqlen_kv);
      cu_seqlen_q.push_back(cu_seqlen_q.back() + request.seqlen_q);
      max_seqlen_q = std::max(max_seqlen_q, request.seqlen_q);
    }
    num_tokens = cu_seqlen_q.back() + c.num_padding;
    place_pages();
    const int64_t num_pages = next_page_;
    q = random_tensor({num_tokens, c.num_heads, c.head_dim}, DType::kF32, 1);
    weights = random_tensor({num_tokens, c.num_heads}, DType::kF32, 2);
    k = random_tensor({num_pages, c.page_size, c.head_dim}, c.k_dtype, 3);
    latent = random_tensor({num_pages, c.page_size, kRank + kRopeDim}, DType::kF32, 4);
    mla_q = random_tensor({num_tokens, kNumQHeads, kRank}, DType::kF32, 5);
    mla_q_rope = random_tensor({num_tokens, kNumQHeads, kRopeDim}, DType::kF32, 6);
    poison_unused();
  }

  SparseMlaLimits limits() const {
    return {.max_tokens = num_tokens + 3,
            .max_keys = case_.max_keys,
            .top_k = case_.top_k,
            .num_q_heads = kNumQHeads,
            .kv_lora_rank = kRank,
            .batch_invariant = case_.batch_invariant,
            .kv_dtype = DType::kF32};
  }
  QueryBatch batch() const {
    return {.cu_seqlen_q = cu_seqlen_q, .seqlen_kv = seqlen_kv, .max_seqlen_q = max_seqlen_q};
  }
  SelectKeysArgs args() const {
    return {.q = q,
            .weights = weights,
            .k = k,
            .index = {.kind = KvIndexKind::kRequestRows,
                      .page_size = case_.page_size,
                      .table = table_.data(),
                      .table_stride = stride_,
                      .rows = rows_.data()},
            .batch = batch()};
  }
  SparseMlaArgs mla_args(const Tensor& out, const Tensor& lse) const {
    return {.q = mla_q,
            .q_rope = mla_q_rope,
            .out = out,
            .lse = lse,
            .latent = latent,
            .scale_kv = 1.5f,
            .score = {.scale = 0.3f, .logit_cap = case_.logit_cap, .sinks = sinks_}};
  }
  // Position of a slot of a request.
  int32_t position(size_t request, int32_t slot) const {
    for (int32_t p = 0; p < seqlen_kv[request]; ++p)
      if (slot_at(request, p) == slot) return p;
    return -1;
  }
  // Visible keys of a token, and its request; 0 for padding.
  std::pair<size_t, int32_t> visible(int32_t token) const {
    for (size_t r = 0; r < seqlen_kv.size(); ++r)
      if (token >= cu_seqlen_q[r] && token < cu_seqlen_q[r + 1])
        return {r, seqlen_kv[r] - (cu_seqlen_q[r + 1] - 1 - token)};
    return {0, 0};
  }

  std::vector<int32_t> seqlen_kv, cu_seqlen_q{0};
  int max_seqlen_q = 0, num_tokens = 0;
  Tensor q, weights, k, latent, mla_q, mla_q_rope;

 private:
  int32_t slot_at(size_t request, int32_t p) const {
    const int32_t first = p / case_.page_size * case_.page_size;
    return table_[static_cast<size_t>(rows_[request] * stride_ + first)] + p - first;
  }

  void place_pages() {
    const int32_t page_size = case_.page_size;
    stride_ = (*std::ranges::max_element(seqlen_kv) / page_size + 2) * page_size;
    std::vector<int32_t> pages;
    for (const int32_t seqlen : seqlen_kv)
      for (int32_t p = 0; p < seqlen; p += page_size) pages.push_back(next_page_++);
    ++next_page_;  // an unused page
    std::mt19937 generator(7);
    std::ranges::shuffle(pages, generator);
    table_.assign(seqlen_kv.size() * static_cast<size_t>(stride_), 1 << 30);
    auto page = pages.begin();
    for (size_t r = 0; r < seqlen_kv.size(); ++r) {
      rows_.push_back(static_cast<int32_t>(seqlen_kv.size() - 1 - r));
      for (int32_t p = 0; p < seqlen_kv[r]; p += page_size)
        table_[static_cast<size_t>(rows_[r] * stride_ + p)] = *page++ * page_size;
    }
  }

  void poison_unused() {
    std::vector<bool> used(static_cast<size_t>(next_page_ * case_.page_size));
    for (size_t r = 0; r < seqlen_kv.size(); ++r)
      for (int32_t p = 0; p < seqlen_kv[r]; ++p) used[static_cast<size_t>(slot_at(r, p))] = true;
    for (size_t slot = 0; slot < used.size(); ++slot)
      if (!used[slot]) {
        std::fill_n(latent.as<float>() + slot * (kRank + kRopeDim), kRank + kRopeDim, NAN);
        visit_float_dtype(case_.k_dtype, [&]<class T>(TypeTag<T>) {
          std::fill_n(k.as<T>() + slot * static_cast<size_t>(case_.head_dim), case_.head_dim, T(NAN));
        });
      }
  }

  IndexCase case_;
  int32_t next_page_ = 1;
  int64_t stride_ = 0;
  std::vector<int32_t> table_, rows_;
  std::vector<float> sinks_;  // [kNumQHeads]
};

std::vector<IndexCase> index_cases() {
  return {{.requests = {{40, 1}}},
          {.requests = {{1, 1}, {15, 1}, {16, 1}, {17, 1}, {300, 1}}},
          {.requests = {{17, 17}, {200, 33}, {5, 5}}, .num_padding = 2},
          {.requests = {{130, 130}}, .top_k = 7, .num_heads = 9, .head_dim = 40, .page_size = 1},
          {.requests = {{129, 3}, {64, 64}}, .num_heads = 1, .head_dim = 128, .page_size = 64},
          {.requests = {{500, 4}}, .top_k = 64, .num_heads = 64, .head_dim = 128, .k_dtype = DType::kBF16},
          {.requests = {{257, 2}, {90, 1}}, .num_heads = 6, .head_dim = 24, .k_dtype = DType::kF16},
          // Scores of four queries at a time.
          {.requests = {{60, 11}, {70, 3}, {33, 33}}, .max_keys = 1 << 20},
          {.requests = {{3, 3}, {9, 1}}, .top_k = 1},
          {.requests = {{70, 5}}, .logit_cap = 2.0f, .sinks = true}};
}

// Checks that each query selects the keys with the highest scores of the reference, up to rounding.
void expect_selection(const IndexStep& step, const IndexCase& c, const SelectedKeys& keys) {
  const int max_keys = *std::ranges::max_element(step.seqlen_kv);
  std::vector<double> scores(static_cast<size_t>(step.num_tokens * max_keys));
  reference::index_scores(step.args(), max_keys, scores);
  for (int32_t token = 0; token < step.num_tokens; ++token) {
    const auto [request, visible] = step.visible(token);
    const double* const row = scores.data() + static_cast<ptrdiff_t>(token) * max_keys;
    ASSERT_EQ(keys.counts[static_cast<size_t>(token)], std::min(visible, c.top_k)) << "token " << token;
    std::vector<int32_t> positions;
    for (int i = 0; i < keys.counts[static_cast<size_t>(token)]; ++i)
      positions.push_back(step.position(request, keys.slots[static_cast<size_t>(token * keys.width + i)]));
    ASSERT_TRUE(std::ranges::is_sorted(positions, std::less_equal())) << "token " << token;
    if (visible <= c.top_k) {
      for (int i = 0; i < visible; ++i) ASSERT_EQ(positions[static_cast<size_t>(i)], i);
      continue;
    }
    double lowest = std::numeric_limits<double>::infinity(), highest = -lowest, largest = 0.0;
    for (int32_t key = 0; key < visible; ++key) {
      largest = std::max(largest, std::abs(row[key]));
      if (std::ranges::binary_search(positions, key))
        lowest = std::min(lowest, row[key]);
      else
        highest = std::max(highest, row[key]);
    }
    ASSERT_GE(positions.front(), 0) << "token " << token;
    ASSERT_LT(positions.back(), visible) << "token " << token;
    EXPECT_GE(lowest, highest - 1e-5 * largest) << "token " << token;
  }
}

TEST(SelectKeys, FindsTheHighestScoresWithEveryInstructionSet) {
  for (const IndexCase& c : index_cases()) {
    SCOPED_TRACE(to_string(c));
    const IndexStep step(c);
    SparseMlaPlan plan(step.limits(), Device{});
    Stream stream;
    plan.plan(step.batch(), step.num_tokens, stream);
    for (const cpu::Isa isa : cpu::available_isas()) {
      SCOPED_TRACE(to_string(isa));
      std::ranges::fill(plan.keys().slots, -7);
      cpu::select_keys(step.args(), plan.scores(), plan.keys(), isa);
      expect_selection(step, c, plan.keys());
    }
  }
}

TEST(SelectKeys, ReferenceSelectsByItsScores) {
  for (const IndexCase& c : index_cases()) {
    SCOPED_TRACE(to_string(c));
    const IndexStep step(c);
    std::vector<int32_t> slots(static_cast<size_t>(step.num_tokens * c.top_k)),
        counts(static_cast<size_t>(step.num_tokens));
    const SelectedKeys keys{.slots = slots, .counts = counts, .width = c.top_k};
    reference::select_keys(step.args(), keys);
    expect_selection(step, c, keys);
  }
}

// Products of weights below 0 with 0 are -0, which equals 0.
TEST(SelectKeys, PrefersEarlierKeysOfEqualScores) {
  const IndexCase c{.requests = {{100, 2}}, .top_k = 5, .num_heads = 2, .head_dim = 8, .page_size = 4};
  const IndexStep step(c);
  std::ranges::fill(step.weights.span<float>(), -1.0f);
  std::ranges::fill(step.q.span<float>(), 1.0f);
  const auto set_key = [&](int32_t position, float value) {
    for (int32_t slot = 0; slot < step.k.shape(0) * 4; ++slot)
      if (step.position(0, slot) == position) std::fill_n(step.k.as<float>() + slot * 8, 8, value);
  };
  for (int32_t p = 0; p < 100; ++p) set_key(p, p % 2 == 0 ? -1.0f : 0.0f);  // scores -0
  for (const int32_t p : {2, 3, 50}) set_key(p, 1.0f);                      // lower scores
  SparseMlaPlan plan(step.limits(), Device{});
  Stream stream;
  plan.plan(step.batch(), step.num_tokens, stream);
  select_keys(step.args(), plan, stream);
  std::vector<int32_t> slots(10), counts(2);
  reference::select_keys(step.args(), {.slots = slots, .counts = counts, .width = 5});
  for (size_t i = 0; i < 10; ++i) {
    constexpr int32_t kExpected[] = {0, 1, 4, 5, 6};
    EXPECT_EQ(step.position(0, plan.keys().slots[i]), kExpected[i % 5]);
    EXPECT_EQ(step.position(0, slots[i]), kExpected[i % 5]);
  }
}

TEST(SparseMla, MatchesTheReferenceOverTheSameKeys) {
  for (IndexCase c : index_cases())
    for (const bool batch_invariant : {false, true}) {
      c.batch_invariant = batch_invariant;
      SCOPED_TRACE(to_string(c));
      const IndexStep step(c);
      SparseMlaPlan plan(step.limits(), Device{});
      Stream stream;
      plan.plan(step.batch(), step.num_tokens, stream);
      select_keys(step.args(), plan, stream);
      const auto shape = {int64_t{step.num_tokens}, int64_t{kNumQHeads}, int64_t{kRank}};
      const Tensor out = random_tensor(shape, DType::kF32, 8), wanted = random_tensor(shape, DType::kF32, 9);
      const Tensor lse = random_tensor({step.num_tokens, kNumQHeads}, DType::kF32, 10),
                   wanted_lse = random_tensor({step.num_tokens, kNumQHeads}, DType::kF32, 11);
      sparse_mla(step.mla_args(out, lse), plan, stream);
      reference::sparse_mla(step.mla_args(wanted, wanted_lse), plan.keys());
      for (size_t i = 0; i < out.span<float>().size(); ++i)
        ASSERT_NEAR(out.span<float>()[i], wanted.span<float>()[i], 2e-5f) << "element " << i;
      for (size_t i = 0; i < lse.span<float>().size(); ++i) {
        const float a = lse.span<float>()[i], b = wanted_lse.span<float>()[i];
        ASSERT_TRUE(a == b || std::abs(a - b) < 2e-5f) << a << " and " << b;
      }
    }
}

TEST(SparseMla, IsMlaIfAllKeysAreSelected) {
  IndexCase c{.requests = {{70, 9}, {33, 1}}, .top_k = 100};
  const IndexStep step(c);
  SparseMlaPlan plan(step.limits(), Device{});
  Stream stream;
  plan.plan(step.batch(), step.num_tokens, stream);
  select_keys(step.args(), plan, stream);
  const auto shape = {int64_t{step.num_tokens}, int64_t{kNumQHeads}, int64_t{kRank}};
  const Tensor out = random_tensor(shape, DType::kF32, 8), wanted = random_tensor(shape, DType::kF32, 9);
  sparse_mla(step.mla_args(out, {}), plan, stream);
  const SparseMlaArgs sparse = step.mla_args(wanted, {});
  reference::mla({.q = sparse.q,
                  .q_rope = sparse.q_rope,
                  .out = sparse.out,
                  .lse = {},
                  .latent = sparse.latent,
                  .index = step.args().index,
                  .scale_kv = sparse.scale_kv,
                  .batch = step.batch(),
                  .attention_mask = {},
                  .score = sparse.score});
  for (size_t i = 0; i < out.span<float>().size(); ++i)
    ASSERT_NEAR(out.span<float>()[i], wanted.span<float>()[i], 2e-5f) << "element " << i;
}

// The last query of a chunk has the bits of the same query in a step of its own.
TEST(SparseMla, BitsDoNotDependOnTheStepIfItIsBatchInvariant) {
  const IndexCase whole{
      .requests = {{200, 40}, {90, 2}}, .num_heads = 5, .page_size = 1, .batch_invariant = true};
  IndexCase last = whole;
  last.requests = {{200, 1}};
  const IndexStep whole_step(whole), last_step(last);
  // The same keys and queries. Pages of one token have the same order of slots only by position.
  const auto copy_row = [](const Tensor& from, int64_t i, const Tensor& to, int64_t j) {
    const int64_t width = from.view().num_elements() / from.shape(0);
    std::copy_n(from.as<float>() + i * width, width, to.as<float>() + j * width);
  };
  for (int32_t slot = 0; slot < last_step.k.shape(0); ++slot) {
    const int32_t p = last_step.position(0, slot);
    if (p < 0) continue;
    for (int32_t other = 0; other < whole_step.k.shape(0); ++other)
      if (whole_step.position(0, other) == p) {
        copy_row(whole_step.k, other, last_step.k, slot);
        copy_row(whole_step.latent, other, last_step.latent, slot);
      }
  }
  copy_row(whole_step.q, 39, last_step.q, 0);
  copy_row(whole_step.weights, 39, last_step.weights, 0);
  copy_row(whole_step.mla_q, 39, last_step.mla_q, 0);
  copy_row(whole_step.mla_q_rope, 39, last_step.mla_q_rope, 0);
  const auto result = [](const IndexStep& step, int32_t token) {
    SparseMlaPlan plan(step.limits(), Device{});
    Stream stream;
    plan.plan(step.batch(), step.num_tokens, stream);
    select_keys(step.args(), plan, stream);
    const Tensor out = Tensor::zeros({step.num_tokens, kNumQHeads, kRank}, DType::kF32);
    sparse_mla(step.mla_args(out, {}), plan, stream);
    const auto row = out.view()[token].reshape({kNumQHeads * kRank}).span<float>();
    return std::vector<float>(row.begin(), row.end());
  };
  EXPECT_EQ(result(whole_step, 39), result(last_step, 0));
}

TEST(SparseMlaPlan, RejectsWhatItDoesNotSupport) {
  const IndexStep step({.requests = {{40, 2}}});
  SparseMlaPlan plan(step.limits(), Device{});
  Stream stream;
  EXPECT_EQ(error_message(ErrorCode::kUnsupported,
                          [&] {
                            SparseMlaPlan(step.limits(), Device{DeviceType::kCuda, 0});
                          }),
            "sparse MLA on cuda:0: attend has its kernels for CPUs only");
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { plan.plan(step.batch(), 6, stream); }),
            "batch of 6 tokens: the plan was made for at most 5 (sparse MLA)");
  std::vector<uint64_t> mask(2);
  QueryBatch tree = step.batch();
  tree.tree_mask = mask;
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { plan.plan(tree, 2, stream); }),
            "tree mask: sparse MLA supports causal attention only");
  plan.plan(step.batch(), 2, stream);
  SelectKeysArgs args = step.args();
  const Tensor wide = Tensor::zeros({2, 4, 136}, DType::kF32);
  args.q = wide;
  EXPECT_NE(
      error_message(ErrorCode::kInvalidArgument, [&] { select_keys(args, plan, stream); }).find("index k"),
      std::string::npos);
  const Tensor wide_k = Tensor::zeros({step.k.shape(0), 16, 136}, DType::kF32);
  args.k = wide_k;
  EXPECT_EQ(error_message(ErrorCode::kUnsupported, [&] { select_keys(args, plan, stream); }),
            "index q float32[2, 4, 136] on cpu: attend supports head dims up to 128");
}

TEST(SparseMlaPlan, CountsItsBytes) {
  const SparseMlaLimits limits{.max_tokens = 100,
                               .max_keys = 4096,
                               .top_k = 256,
                               .num_q_heads = 4,
                               .kv_lora_rank = 64,
                               .kv_dtype = DType::kF32};
  EXPECT_GE(SparseMlaPlan::num_bytes(limits), 4u * (100 * 256 + 100 * 4096));
  EXPECT_LT(SparseMlaPlan::num_bytes(limits), 4u << 20);
}

}  // namespace
}  // namespace attend::kernels
