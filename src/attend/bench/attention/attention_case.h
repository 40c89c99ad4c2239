// AttentionCase: one attention problem to be timed, and the list of those that `attend bench attention`
// knows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attend/tensor/dtype.h"

namespace attend::bench {

// Where the K/V of a case lies when a step begins.
enum class Residency : uint8_t {
  kCache,   // one layer, attended again and again: the smallest cache that holds it
  kMemory,  // as many layers in turn as it takes to find none of it in a cache
};

struct AttentionCase {
  DType kv_dtype = DType::kBF16;
  DType q_dtype = DType::kBF16;
  int batch = 1;
  int seqlen_q = 1;  // of each request
  int seqlen_kv = 0;
  int num_q_heads = 32, num_kv_heads = 8;
  int head_dim = 128;
  int mla_rope_dim = 0;  // above 0: MLA, with head_dim as kv_lora_rank
  int page_size = 64;    // what the CPU backend prefers
  Residency residency = Residency::kCache;

  // "decode bf16 kv32768 dram", "prefill bf16 2048", "mla-decode bf16 kv4096", "decode bf16 kv32768 dram
  // page1"
  std::string name() const;
  bool is_mla() const { return mla_rope_dim > 0; }
  int64_t num_tokens() const { return int64_t{batch} * seqlen_q; }
  int64_t num_keys() const { return int64_t{batch} * seqlen_kv; }
  // Of one layer, each read once per step.
  int64_t kv_bytes() const;
  // Products and sums of q.k and p.v for the pairs that a causal mask leaves.
  double operations() const;
};

// Those whose name contains `filter`. Throws Error(kInvalidArgument), with the names, when there is none.
std::vector<AttentionCase> attention_cases(const std::string& filter);

}  // namespace attend::bench
