// AttentionCase: one attention problem as plain data. It prints itself as a C++ literal.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/metadata/kv_index.h"
#include "attend/kv/kv_pool.h"
#include "attend/tensor/dtype.h"

namespace attend::conformance {

// Order of pages in the pool.
enum class PageOrder : uint8_t {
  kSequential,
  kShuffled,
  kInterleaved,  // pages of the requests alternate
  kReversed,     // descending page ids
};

// Dependencies among a request's new tokens in speculative decoding.
enum class TreeShape : uint8_t {
  kNone,   // no tree mask
  kChain,  // tree mask equal to causal attention
  kTree,   // tree mask with branches
};

// Standard deviation of the scores of a row.
enum class ScoreSpread : uint8_t {
  kOrdinary,  // about 1, as with random activations
  kFlat,      // about 0.02: all keys have nearly equal weights
  kSharp,     // about 12: one key has nearly all of the weight
};

// Returns a literal such as "PageOrder::kShuffled".
std::string_view literal_name(PageOrder order);
std::string_view literal_name(TreeShape tree);
std::string_view literal_name(ScoreSpread spread);

struct Lengths {
  int seqlen_q = 0;
  int seqlen_kv = 0;
  bool operator==(const Lengths&) const = default;
};

// Prints a literal such as `{1, 17}`.
std::ostream& operator<<(std::ostream& out, const Lengths& lengths);

struct AttentionCase {
  std::vector<Lengths> requests = {};

  int num_q_heads = 4;
  int num_kv_heads = 2;
  int head_dim_qk = 64;  // MLA: kv_lora_rank + rope_dim
  int head_dim_v = 64;   // MLA: kv_lora_rank
  int rope_dim = 0;      // MLA: last columns of head_dim_qk, passed as q_rope; 0: not MLA
  DType q_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;  // MLA: kU8 for scaled rows

  kernels::KvIndexKind index = kernels::KvIndexKind::kRequestRows;
  int page_size = 1;  // 1 for kContiguous
  PageOrder page_order = PageOrder::kSequential;
  KvLayout layout = KvLayout::kTokenMajor;
  bool slot_map = false;       // kRequestRows: rows contain slots of another pool half
  bool shared_prefix = false;  // requests share the pages that their common prefix fills
  bool strided = false;  // gaps between heads and tokens of q, out, lse and the pool; K and V interleaved

  float k_scale = 1.0f;  // MLA: v_scale is k_scale
  float v_scale = 1.0f;
  bool head_scales = false;  // fp8 q or K/V: descales of q, K and V per request and KV head
  bool causal = true;
  int window_left = -1;
  int window_right = 0;  // INT32_MAX: up to the last key
  int chunk = 0;
  float logit_cap = 0.0f;
  bool sinks = false;
  TreeShape tree = TreeShape::kNone;
  ScoreSpread spread = ScoreSpread::kOrdinary;

  int num_pad_reqs = 0;        // request row 0, length 1
  int pad_seqlen_q = 0;        // queries per padding request: 0, or 1 that reads the padding page
  int num_pad_tokens = 0;      // tokens after cu_seqlen_q.back()
  int max_seqlen_q_slack = 0;  // amount by which max_seqlen_q exceeds the largest seqlen_q
  bool lse = true;             // LSE is requested

  kernels::SplitRule split_rule = kernels::SplitRule::kNone;
  int split_tokens = 256;
  int num_workers = 0;
  bool short_requests = true;
  uint64_t seed = 0;

  int num_reqs() const { return static_cast<int>(requests.size()) + num_pad_reqs; }
  // Number of tokens of requests including padding requests; num_tokens() adds padding tokens.
  int num_request_tokens() const;
  int num_tokens() const { return num_request_tokens() + num_pad_tokens; }
  int max_seqlen_q() const;
  // Number of keys of all requests, including padding requests.
  int64_t num_kv_tokens() const;
  bool is_mla() const { return rope_dim > 0; }
};

// Prints `AttentionCase{.requests = {{1, 17}}, .page_size = 16, .seed = 3}`; fields with default values are
// omitted.
std::string to_literal(const AttentionCase& c);
std::ostream& operator<<(std::ostream& out, const AttentionCase& c);

// Limits of a plan for only this case.
kernels::AttentionPlanLimits plan_limits(const AttentionCase& c);

}  // namespace attend::conformance
