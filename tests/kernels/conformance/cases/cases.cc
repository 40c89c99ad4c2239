#include "tests/kernels/conformance/cases/cases.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "attend/kernels/kv_store/selected_rows.h"
#include "tests/kernels/conformance/cases/random.h"

namespace attend::conformance {
namespace {

using kernels::KvIndexKind;
using kernels::SplitRule;

// Returns the values in random order. Every value occurs once before any is repeated.
template <class T>
class ShuffledCycle {
 public:
  ShuffledCycle(std::initializer_list<T> values) : values_(values) {}
  T deal(Random& random) {
    if (next_ == 0) random.shuffle(values_);
    const T value = values_[next_];
    next_ = (next_ + 1) % values_.size();
    return value;
  }

 private:
  std::vector<T> values_;
  size_t next_ = 0;
};

struct Heads {
  int num_q_heads, num_kv_heads;
};
struct HeadDims {
  int qk, v;
};
struct DTypes {
  DType q, out, kv;
};
struct Splits {
  SplitRule rule;
  int split_tokens, num_workers;
};

// How the new tokens of a request are computed.
enum class Phase { kWhole, kExtend, kDecode, kChain, kTree };

class CaseSampler {
 public:
  explicit CaseSampler(uint64_t seed) : random_(seed) {}

  // Fields that do not depend on the family.
  AttentionCase common() {
    AttentionCase c;
    c.seed = random_.next() % 1000000;
    const Heads heads = heads_.deal(random_);
    c.num_q_heads = heads.num_q_heads;
    c.num_kv_heads = heads.num_kv_heads;
    const HeadDims dims = dims_.deal(random_);
    c.head_dim_qk = dims.qk;
    c.head_dim_v = dims.v;
    const DTypes dtypes = dtypes_.deal(random_);
    c.q_dtype = dtypes.q;
    c.out_dtype = dtypes.out;
    c.kv_dtype = dtypes.kv;
    c.index = index_.deal(random_);
    c.page_order = order_.deal(random_);
    c.layout = layout_.deal(random_);
    const bool paged = c.index != KvIndexKind::kContiguous;
    c.page_size = page_size_.deal(random_);
    if (!paged) c.page_size = 1;
    c.slot_map = c.index == KvIndexKind::kRequestRows && one_in_3();
    c.shared_prefix = paged && one_in_5();
    c.strided = one_in_3();
    if (is_fp8(c.kv_dtype) || one_in_5()) {
      c.k_scale = scale_.deal(random_);
      c.v_scale = scale_.deal(random_);
    }
    if (one_in_5()) c.logit_cap = cap_.deal(random_);
    c.sinks = one_in_3();
    c.spread = spread_.deal(random_);
    c.max_seqlen_q_slack = slack_.deal(random_);
    c.lse = !one_in_5();
    const Splits splits = splits_.deal(random_);
    c.split_rule = splits.rule;
    c.split_tokens = splits.split_tokens;
    c.num_workers = splits.num_workers;
    return c;
  }

  // Number of new tokens of a request of `seqlen_kv` keys: at most `max_tokens`, and a few in
  // verification.
  int seqlen_q(Phase phase, int seqlen_kv, int max_tokens) {
    switch (phase) {
      case Phase::kWhole:
        return std::min(seqlen_kv, max_tokens);
      case Phase::kExtend:
        return seqlen_kv == 0 ? 0 : 1 + random_.below(std::min(seqlen_kv, max_tokens));
      case Phase::kDecode:
        return seqlen_kv == 0 ? 0 : 1;
      case Phase::kChain:
      case Phase::kTree:
        return std::min(seqlen_kv, 2 + random_.below(6));
    }
    return 0;
  }

  void set_tree(AttentionCase& c, Phase phase) {
    if (phase == Phase::kChain) c.tree = TreeShape::kChain;
    if (phase == Phase::kTree) c.tree = TreeShape::kTree;
  }

  // Adds requests with lengths drawn from `lengths`.
  void draw_requests(AttentionCase& c, Phase phase, const std::vector<int>& lengths, int num_reqs,
                     int max_tokens) {
    for (int i = 0; i < num_reqs; ++i) {
      const int seqlen_kv =
          std::max(0, lengths[static_cast<size_t>(random_.below(static_cast<int>(lengths.size())))]);
      c.requests.push_back({seqlen_q(phase, seqlen_kv, max_tokens), seqlen_kv});
    }
    set_tree(c, phase);
  }

  AttentionCase page_edges() {
    AttentionCase c = common();
    const Phase phase = phase_.deal(random_);
    const int page = c.page_size > 1 ? c.page_size : 16;
    draw_requests(c, phase, {0, 1, page - 1, page, page + 1, 2 * page + 3}, 1 + random_.below(4),
                  page <= 16 ? 40 : 9);
    return c;
  }

  AttentionCase windows() {
    AttentionCase c = common();
    const int w = window_.deal(random_);
    c.window_left = w - 1;
    draw_requests(c, phase_.deal(random_), {w - 1, w, w + 1, 2 * w + 1, 3 * w + 7}, 1 + random_.below(3), 24);
    return c;
  }

  AttentionCase chunks() {
    AttentionCase c = common();
    const int n = chunk_.deal(random_);
    c.chunk = n;
    if (one_in_5()) c.window_left = n / 2;
    draw_requests(c, phase_.deal(random_), {n - 1, n, n + 1, 2 * n - 1, 2 * n, 2 * n + 1, 3 * n + 2},
                  1 + random_.below(3), 24);
    return c;
  }

  // All tokens of the request, or an encoder's tokens, which may be fewer than the queries.
  AttentionCase bidirectional() {
    AttentionCase c = common();
    c.causal = false;
    if (one_in_3()) c.window_left = window_.deal(random_) - 1;
    for (int i = 1 + random_.below(3); i > 0; --i)
      c.requests.push_back({random_.below(20), random_.below(70)});
    return c;
  }

  // Includes trees of more than one mask word.
  AttentionCase trees() {
    AttentionCase c = common();
    c.tree = TreeShape::kTree;
    const int num_new = tree_size_.deal(random_);
    for (int i = num_new < 60 ? 1 + random_.below(2) : 1; i > 0; --i) {
      const int seqlen_q = std::max(1, num_new - random_.below(3));
      c.requests.push_back({seqlen_q, seqlen_q + random_.below(90)});
    }
    return c;
  }

  // Keys after the query too, within its chunk if any; includes rows before the first key.
  AttentionCase right_windows() {
    AttentionCase c = common();
    const int w = window_.deal(random_);
    c.window_right = right_.deal(random_);
    if (!one_in_3()) c.window_left = w - 1;
    if (one_in_3()) c.chunk = chunk_.deal(random_);
    draw_requests(c, Phase::kExtend, {w, w + 1, 3 * w + 7, 150}, 1 + random_.below(3), one_in_3() ? 100 : 24);
    if (one_in_3()) c.requests.push_back({12 + random_.below(30), 1 + random_.below(20)});
    return c;
  }

  // More queries than keys, so that the first queries attend to none.
  AttentionCase more_queries_than_keys() {
    AttentionCase c = common();
    c.requests = {{5, 3}, {9, 0}, {1 + random_.below(40), 1 + random_.below(40)}, {2, 1}};
    if (one_in_3()) c.window_left = 1;
    return c;
  }

  AttentionCase padding() {
    AttentionCase c = common();
    const Phase phase = phase_.deal(random_);
    draw_requests(c, phase, {1, c.page_size, c.page_size + 1, 33}, 3, 7);
    c.num_pad_reqs = 1 + random_.below(2);
    c.pad_seqlen_q = random_.below(2);
    c.num_pad_tokens = random_.below(4);
    if (one_in_3()) c.window_left = 3;
    return c;
  }

  // Long enough to be split. Small heads keep the reference fast.
  AttentionCase long_kv() {
    AttentionCase c = common();
    c.head_dim_qk = c.head_dim_v = long_dim_.deal(random_);
    c.num_kv_heads = 1;
    c.num_q_heads = long_group_.deal(random_);
    const Splits splits = long_splits_.deal(random_);
    c.split_rule = splits.rule;
    c.split_tokens = splits.split_tokens;
    c.num_workers = splits.num_workers;
    const Phase phase = phase_.deal(random_);
    for (int i = 1 + random_.below(2); i > 0; --i) {
      const int seqlen_kv = 1000 + random_.below(2001);
      c.requests.push_back({seqlen_q(phase, seqlen_kv, 3), seqlen_kv});
    }
    c.requests.push_back({1, 1 + random_.below(300)});
    if (one_in_5()) c.window_left = 700;
    if (one_in_5()) c.chunk = 900;
    set_tree(c, phase);
    return c;
  }

  AttentionCase long_prefill() {
    AttentionCase c = common();
    c.head_dim_qk = c.head_dim_v = 64;
    const Heads heads = prefill_heads_.deal(random_);
    c.num_q_heads = heads.num_q_heads;
    c.num_kv_heads = heads.num_kv_heads;
    const int seqlen_q = 100 + random_.below(80);
    c.requests = {{seqlen_q, seqlen_q + random_.below(2) * random_.below(100)}, {random_.below(20), 20}};
    if (one_in_3()) c.window_left = 63;
    return c;
  }

  // The widest heads; the second ones are MLA's latent rows.
  AttentionCase widest() {
    AttentionCase c = common();
    const HeadDims dims = wide_dims_.deal(random_);
    c.head_dim_qk = dims.qk;
    c.head_dim_v = dims.v;
    draw_requests(c, phase_.deal(random_), {1, 16, 30}, 2, 3);
    return c;
  }

  // A step without requests, with and without padding tokens.
  AttentionCase idle(int num_pad_tokens) {
    AttentionCase c = common();
    c.num_pad_tokens = num_pad_tokens;
    return c;
  }

  AttentionCase mla() {
    AttentionCase c = common();
    const HeadDims dims = mla_dims_.deal(random_);
    c.head_dim_qk = dims.qk;
    c.head_dim_v = dims.v;
    c.rope_dim = dims.qk - dims.v;
    c.num_kv_heads = 1;
    c.num_q_heads = mla_heads_.deal(random_);
    c.layout = KvLayout::kTokenMajor;
    c.slot_map = false;
    c.v_scale = 1.0f;
    const bool many_heads = c.num_q_heads > 16;
    const Phase phase = phase_.deal(random_);
    draw_requests(c, phase, {0, 1, c.page_size, c.page_size + 1, many_heads ? 20 : 90}, many_heads ? 1 : 2,
                  many_heads ? 2 : 5);
    if (many_heads && c.requests[0].seqlen_kv > 70) c.requests[0].seqlen_q = 1;
    if (one_in_3()) c.window_left = 15;
    if (one_in_5()) c.num_pad_tokens = 2;
    return c;
  }

  AttentionCase batch_invariance() {
    AttentionCase c = common();
    c.split_rule = SplitRule::kFixed;
    c.split_tokens = fixed_split_.deal(random_);
    c.max_seqlen_q_slack = 0;
    draw_requests(c, phase_edge_.deal(random_), {1, 63, 64, 65, 130, 300}, 3, 20);
    if (one_in_3()) c.window_left = 70;
    if (one_in_5()) c.chunk = 96;
    return c;
  }

 private:
  bool one_in_3() { return one_in_3_.deal(random_) == 1; }
  bool one_in_5() { return one_in_5_.deal(random_) == 1; }

  Random random_;
  ShuffledCycle<Heads> heads_{{2, 2}, {1, 1}, {3, 1}, {6, 2}, {4, 1}, {8, 2}, {7, 1}, {14, 2}, {8, 1}};
  ShuffledCycle<HeadDims> dims_{{64, 64},   {80, 80},   {96, 96}, {112, 112}, {128, 128}, {128, 128},
                                {256, 256}, {192, 128}, {8, 8},   {40, 72},   {32, 32}};
  ShuffledCycle<DTypes> dtypes_{
      {DType::kF32, DType::kF32, DType::kF32},      {DType::kF32, DType::kF32, DType::kF16},
      {DType::kF32, DType::kF32, DType::kBF16},     {DType::kF32, DType::kF32, DType::kF8E4M3},
      {DType::kF32, DType::kBF16, DType::kF8E5M2},  {DType::kF16, DType::kF16, DType::kF16},
      {DType::kF16, DType::kF32, DType::kF16},      {DType::kF16, DType::kF16, DType::kF8E4M3},
      {DType::kF16, DType::kF16, DType::kBF16},     {DType::kBF16, DType::kBF16, DType::kBF16},
      {DType::kBF16, DType::kBF16, DType::kBF16},   {DType::kBF16, DType::kF32, DType::kBF16},
      {DType::kBF16, DType::kBF16, DType::kF8E4M3}, {DType::kBF16, DType::kBF16, DType::kF8E5M2},
      {DType::kBF16, DType::kBF16, DType::kF16},    {DType::kBF16, DType::kBF16, DType::kF32}};
  ShuffledCycle<KvIndexKind> index_{KvIndexKind::kRequestRows, KvIndexKind::kRequestRows,
                                    KvIndexKind::kPageTable, KvIndexKind::kCsr, KvIndexKind::kContiguous};
  ShuffledCycle<PageOrder> order_{PageOrder::kSequential, PageOrder::kShuffled, PageOrder::kInterleaved,
                                  PageOrder::kReversed};
  ShuffledCycle<KvLayout> layout_{KvLayout::kTokenMajor, KvLayout::kHeadMajor};
  ShuffledCycle<int> page_size_{1, 1, 16, 16, 64, 64, 128, 128, 4, 256};
  ShuffledCycle<int> one_in_3_{1, 0, 0};
  ShuffledCycle<int> one_in_5_{1, 0, 0, 0, 0};
  ShuffledCycle<float> scale_{0.037f, 0.5f, 1.7f};
  ShuffledCycle<float> cap_{1.5f, 8.0f, 50.0f};
  ShuffledCycle<ScoreSpread> spread_{ScoreSpread::kOrdinary, ScoreSpread::kOrdinary, ScoreSpread::kFlat,
                                     ScoreSpread::kSharp};
  ShuffledCycle<int> slack_{0, 0, 0, 5, 64};
  ShuffledCycle<Splits> splits_{{SplitRule::kNone, 256, 0},
                                {SplitRule::kFixed, 64, 0},
                                {SplitRule::kFixed, 256, 3},
                                {SplitRule::kBalanced, 256, 0},
                                {SplitRule::kBalanced, 256, 7}};
  ShuffledCycle<Splits> long_splits_{{SplitRule::kNone, 256, 0},     {SplitRule::kFixed, 64, 0},
                                     {SplitRule::kFixed, 256, 2},    {SplitRule::kFixed, 1024, 0},
                                     {SplitRule::kBalanced, 256, 0}, {SplitRule::kBalanced, 256, 8},
                                     {SplitRule::kBalanced, 256, 33}};
  ShuffledCycle<Phase> phase_{Phase::kWhole, Phase::kExtend, Phase::kDecode, Phase::kChain, Phase::kTree};
  ShuffledCycle<Phase> phase_edge_{Phase::kExtend, Phase::kDecode};
  ShuffledCycle<int> window_{1, 2, 5, 17, 64};
  ShuffledCycle<int> right_{1, 2, 3, 16, 70, std::numeric_limits<int32_t>::max()};
  ShuffledCycle<int> chunk_{1, 4, 16, 50, 64};
  ShuffledCycle<int> tree_size_{2, 5, 16, 63, 64, 65, 80};
  ShuffledCycle<int> long_dim_{64, 128, 96};
  ShuffledCycle<int> long_group_{1, 3, 4, 7, 8};
  ShuffledCycle<Heads> prefill_heads_{{4, 1}, {4, 2}, {3, 3}, {7, 1}};
  ShuffledCycle<HeadDims> wide_dims_{{512, 512}, {576, 512}};
  ShuffledCycle<HeadDims> mla_dims_{{576, 512}, {576, 512}, {96, 64}};
  ShuffledCycle<int> mla_heads_{16, 16, 128, 3};
  ShuffledCycle<int> fixed_split_{64, 128, 256};
};

}  // namespace

std::vector<AttentionCase> conformance_cases() {
  CaseSampler sampler(20261122);
  std::vector<AttentionCase> cases;
  const auto add = [&](int count, AttentionCase (CaseSampler::*make)()) {
    for (int i = 0; i < count; ++i) cases.push_back((sampler.*make)());
  };
  add(120, &CaseSampler::page_edges);
  add(80, &CaseSampler::windows);
  add(80, &CaseSampler::chunks);
  add(30, &CaseSampler::bidirectional);
  add(30, &CaseSampler::trees);
  add(15, &CaseSampler::more_queries_than_keys);
  add(30, &CaseSampler::padding);
  add(20, &CaseSampler::long_kv);
  add(8, &CaseSampler::long_prefill);
  add(6, &CaseSampler::widest);
  cases.push_back(sampler.idle(0));
  cases.push_back(sampler.idle(3));
  add(60, &CaseSampler::right_windows);
  return cases;
}

std::vector<AttentionCase> page_order_cases() {
  std::vector<AttentionCase> cases = conformance_cases();
  std::erase_if(cases, [](const AttentionCase& c) {
    return c.index == KvIndexKind::kContiguous || c.num_kv_tokens() < 3 * c.page_size || c.seed % 4 != 0;
  });
  return cases;
}

std::vector<AttentionCase> mla_conformance_cases() {
  CaseSampler sampler(576512);
  std::vector<AttentionCase> cases;
  for (int i = 0; i < 40; ++i) cases.push_back(sampler.mla());
  // Keys after the query, with and without chunks.
  for (int i = 0; i < 12; ++i) {
    AttentionCase c = sampler.mla();
    c.tree = TreeShape::kNone;
    c.window_right = i % 3 == 0 ? std::numeric_limits<int32_t>::max() : 1 + i;
    if (i % 4 == 0) c.chunk = 16;
    cases.push_back(c);
  }
  return cases;
}

std::vector<AttentionCase> scaled_row_cases() {
  CaseSampler sampler(656);
  std::vector<AttentionCase> cases;
  for (int i = 0; i < 24; ++i) {
    AttentionCase c = sampler.mla();
    c.head_dim_v = kernels::kScaledRow.rank;
    c.rope_dim = kernels::kScaledRow.rope_dim;
    c.head_dim_qk = kernels::kScaledRow.width();
    c.kv_dtype = DType::kU8;
    cases.push_back(c);
  }
  return cases;
}

std::vector<AttentionCase> batch_invariance_cases() {
  CaseSampler sampler(64128);
  std::vector<AttentionCase> cases;
  for (int i = 0; i < 40; ++i) cases.push_back(sampler.batch_invariance());
  return cases;
}

std::vector<AttentionCase> on_tensor_cores(std::vector<AttentionCase> cases) {
  size_t i = 0;
  for (AttentionCase& c : cases) {
    c.q_dtype = i % 2 == 0 ? DType::kBF16 : DType::kF16;
    c.out_dtype = i % 5 == 0 ? DType::kF32 : c.q_dtype;
    c.kv_dtype = i % 3 == 0 ? (i % 4 == 0 ? DType::kF8E5M2 : DType::kF8E4M3) : c.q_dtype;
    // fp8 rows start at multiples of 16 bytes.
    if (is_fp8(c.kv_dtype)) {
      c.head_dim_qk = (c.head_dim_qk + 15) / 16 * 16;
      c.head_dim_v = (c.head_dim_v + 15) / 16 * 16;
    }
    ++i;
  }
  return cases;
}

std::vector<AttentionCase> in_e4m3(std::vector<AttentionCase> cases) {
  constexpr DType kOut[] = {DType::kBF16, DType::kF16, DType::kF32};
  size_t i = 0;
  for (AttentionCase& c : cases) {
    c.q_dtype = c.kv_dtype = DType::kF8E4M3;
    c.out_dtype = kOut[i % 3];
    c.head_scales = i % 2 == 0;
    // Rows start at multiples of 16 bytes.
    c.head_dim_qk = (c.head_dim_qk + 15) / 16 * 16;
    c.head_dim_v = (c.head_dim_v + 15) / 16 * 16;
    ++i;
  }
  return cases;
}

}  // namespace attend::conformance
