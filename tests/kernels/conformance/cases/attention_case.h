// AttentionCase: one attention problem as plain data. It prints itself as the C++ literal that makes it.
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

// Which page of the pool holds the next page of positions.
enum class PageOrder : uint8_t {
  kSequential,
  kShuffled,
  kInterleaved,  // the requests take turns
  kReversed,     // falling page ids
};

// How the new tokens of a request depend on one another in speculative decoding.
enum class TreeShape : uint8_t {
  kNone,   // no tree mask
  kChain,  // a tree mask that says what causal attention says
  kTree,   // branches
};

// How far apart the scores of a row lie.
enum class ScoreSpread : uint8_t {
  kOrdinary,  // about 1: what random activations give
  kFlat,      // about 0.02: every key counts the same
  kPeaked,    // about 12: one key takes nearly all
};

// "PageOrder::kShuffled", ...
std::string_view literal_name(PageOrder order);
std::string_view literal_name(TreeShape tree);
std::string_view literal_name(ScoreSpread spread);

struct Lengths {
  int seqlen_q = 0;
  int seqlen_kv = 0;
  bool operator==(const Lengths&) const = default;
};

// `{1, 17}`
std::ostream& operator<<(std::ostream& out, const Lengths& lengths);

struct AttentionCase {
  std::vector<Lengths> requests = {};

  int num_q_heads = 4;
  int num_kv_heads = 2;
  int head_dim_qk = 64;  // MLA: kv_lora_rank + rope_dim
  int head_dim_v = 64;   // MLA: kv_lora_rank
  int rope_dim = 0;      // MLA: trailing part of head_dim_qk that comes as q_rope; 0: not MLA
  DType q_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;  // MLA: kU8 for scaled rows

  kernels::KvIndexKind index = kernels::KvIndexKind::kRequestRows;
  int page_size = 1;  // 1 for kContiguous
  PageOrder page_order = PageOrder::kSequential;
  KvLayout layout = KvLayout::kTokenMajor;
  bool slot_map = false;       // kRequestRows: the rows hold slots of another pool half
  bool shared_prefix = false;  // requests share the pages that their prefixes fill
  bool strided = false;  // gaps between heads and tokens of q, out, lse and the pool; K and V interleaved

  float k_scale = 1.0f;  // MLA: v_scale is k_scale
  float v_scale = 1.0f;
  bool head_scales = false;  // of q or K/V in fp8: descales of q, K and V of each request and K/V head
  bool causal = true;
  int window_left = -1;
  int window_right = 0;  // INT32_MAX: up to the last key
  int chunk = 0;
  float logit_cap = 0.0f;
  bool sinks = false;
  TreeShape tree = TreeShape::kNone;
  ScoreSpread spread = ScoreSpread::kOrdinary;

  int num_pad_reqs = 0;        // request row 0, length 1
  int pad_seqlen_q = 0;        // of each pad request: 0, or 1 query that reads the padding page
  int num_pad_tokens = 0;      // tokens beyond cu_seqlen_q.back()
  int max_seqlen_q_slack = 0;  // max_seqlen_q is an upper bound: this much above the largest
  bool lse = true;             // wanted

  kernels::SplitRule split_rule = kernels::SplitRule::kNone;
  int split_tokens = 256;
  int num_workers = 0;
  bool short_requests = true;
  uint64_t seed = 0;

  int num_reqs() const { return static_cast<int>(requests.size()) + num_pad_reqs; }
  // Tokens of requests, pad requests included, then pad tokens too.
  int num_request_tokens() const;
  int num_tokens() const { return num_request_tokens() + num_pad_tokens; }
  int max_seqlen_q() const;
  // Keys of all requests, pad requests included.
  int64_t num_kv_tokens() const;
  bool is_mla() const { return rope_dim > 0; }
};

// `AttentionCase{.requests = {{1, 17}}, .page_size = 16, .seed = 3}`: fields at their default are left out.
std::string to_literal(const AttentionCase& c);
std::ostream& operator<<(std::ostream& out, const AttentionCase& c);

// What a plan of this case alone needs.
kernels::AttentionPlanLimits plan_limits(const AttentionCase& c);

}  // namespace attend::conformance
