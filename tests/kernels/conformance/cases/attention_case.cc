#include "tests/kernels/conformance/cases/attention_case.h"

#include <algorithm>
#include <string_view>

#include "tests/kernels/conformance/cases/literal.h"

namespace attend::conformance {

std::string_view literal_name(PageOrder order) {
  constexpr std::string_view kNames[] = {"PageOrder::kSequential", "PageOrder::kShuffled",
                                         "PageOrder::kInterleaved", "PageOrder::kReversed"};
  return kNames[static_cast<size_t>(order)];
}

std::string_view literal_name(TreeShape tree) {
  constexpr std::string_view kNames[] = {"TreeShape::kNone", "TreeShape::kChain", "TreeShape::kTree"};
  return kNames[static_cast<size_t>(tree)];
}

std::string_view literal_name(ScoreSpread spread) {
  constexpr std::string_view kNames[] = {"ScoreSpread::kOrdinary", "ScoreSpread::kFlat",
                                         "ScoreSpread::kSharp"};
  return kNames[static_cast<size_t>(spread)];
}

int AttentionCase::num_request_tokens() const {
  int count = num_pad_reqs * pad_seqlen_q;
  for (const Lengths& lengths : requests) count += lengths.seqlen_q;
  return count;
}

int AttentionCase::max_seqlen_q() const {
  int longest = num_pad_reqs > 0 ? pad_seqlen_q : 0;
  for (const Lengths& lengths : requests) longest = std::max(longest, lengths.seqlen_q);
  return longest + max_seqlen_q_slack;
}

int64_t AttentionCase::num_kv_tokens() const {
  int64_t count = num_pad_reqs;
  for (const Lengths& lengths : requests) count += lengths.seqlen_kv;
  return count;
}

std::ostream& operator<<(std::ostream& out, const Lengths& lengths) {
  return out << '{' << lengths.seqlen_q << ", " << lengths.seqlen_kv << '}';
}

std::string to_literal(const AttentionCase& c) {
  const AttentionCase usual;
  LiteralPrinter printer("AttentionCase");
  const auto field = [&](std::string_view name, auto AttentionCase::*member) {
    printer.field(name, c.*member, usual.*member);
  };
  field("requests", &AttentionCase::requests);
  field("num_q_heads", &AttentionCase::num_q_heads);
  field("num_kv_heads", &AttentionCase::num_kv_heads);
  field("head_dim_qk", &AttentionCase::head_dim_qk);
  field("head_dim_v", &AttentionCase::head_dim_v);
  field("rope_dim", &AttentionCase::rope_dim);
  field("q_dtype", &AttentionCase::q_dtype);
  field("out_dtype", &AttentionCase::out_dtype);
  field("kv_dtype", &AttentionCase::kv_dtype);
  field("index", &AttentionCase::index);
  field("page_size", &AttentionCase::page_size);
  field("page_order", &AttentionCase::page_order);
  field("layout", &AttentionCase::layout);
  field("slot_map", &AttentionCase::slot_map);
  field("shared_prefix", &AttentionCase::shared_prefix);
  field("strided", &AttentionCase::strided);
  field("k_scale", &AttentionCase::k_scale);
  field("v_scale", &AttentionCase::v_scale);
  field("head_scales", &AttentionCase::head_scales);
  field("causal", &AttentionCase::causal);
  field("window_left", &AttentionCase::window_left);
  field("window_right", &AttentionCase::window_right);
  field("chunk", &AttentionCase::chunk);
  field("logit_cap", &AttentionCase::logit_cap);
  field("sinks", &AttentionCase::sinks);
  field("tree", &AttentionCase::tree);
  field("spread", &AttentionCase::spread);
  field("num_pad_reqs", &AttentionCase::num_pad_reqs);
  field("pad_seqlen_q", &AttentionCase::pad_seqlen_q);
  field("num_pad_tokens", &AttentionCase::num_pad_tokens);
  field("max_seqlen_q_slack", &AttentionCase::max_seqlen_q_slack);
  field("lse", &AttentionCase::lse);
  field("split_rule", &AttentionCase::split_rule);
  field("split_tokens", &AttentionCase::split_tokens);
  field("num_workers", &AttentionCase::num_workers);
  field("short_requests", &AttentionCase::short_requests);
  field("seed", &AttentionCase::seed);
  return printer.finish();
}

std::ostream& operator<<(std::ostream& out, const AttentionCase& c) { return out << to_literal(c); }

kernels::AttentionPlanLimits plan_limits(const AttentionCase& c) {
  return {.max_reqs = c.num_reqs(),
          .max_tokens = c.num_tokens(),
          .max_kv_tokens = c.num_kv_tokens(),
          .num_q_heads = c.num_q_heads,
          .num_kv_heads = c.num_kv_heads,
          .head_dim_v = c.head_dim_v,
          .split_rule = c.split_rule,
          .split_tokens = c.split_tokens,
          .num_workers = c.num_workers,
          // Plans need not know the dtype.
          .kv_dtype = c.seed % 2 == 0 ? c.kv_dtype : DType::kBF16};
}

}  // namespace attend::conformance
