// AttentionCase: one attention problem to time, and the list of cases of `attend bench attention`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attend/tensor/dtype.h"

namespace attend::bench {

// Location of a case's K/V at the start of a step.
enum class Residency : uint8_t {
  kCache,   // one layer, read repeatedly: the smallest cache that fits it
  kMemory,  // enough layers in rotation that no cache contains their K/V
};

struct AttentionCase {
  DType kv_dtype = DType::kBF16;
  DType q_dtype = DType::kBF16;
  int batch = 1;
  int seqlen_q = 1;  // per request
  int seqlen_kv = 0;
  int num_q_heads = 32, num_kv_heads = 8;
  int head_dim = 128;
  int mla_rope_dim = 0;  // above 0: MLA, with head_dim as kv_lora_rank
  int page_size = 64;    // preferred by the CPU backend
  Residency residency = Residency::kCache;

  // Returns, for example, "decode bf16 kv32768 dram", "prefill bf16 2048", "mla-decode bf16 kv4096" or
  // "decode bf16 kv32768 dram page1".
  std::string name() const;
  bool is_mla() const { return mla_rope_dim > 0; }
  int64_t num_tokens() const { return int64_t{batch} * seqlen_q; }
  int64_t num_keys() const { return int64_t{batch} * seqlen_kv; }
  // Bytes of K/V of one layer, each read once per step.
  int64_t kv_bytes() const;
  // Multiplications and additions of q.k and p.v for the pairs that the causal mask allows.
  double operations() const;
};

// Returns the cases with `filter` in their names. Throws Error(kInvalidArgument) that lists the names if
// there is none.
std::vector<AttentionCase> attention_cases(const std::string& filter);

}  // namespace attend::bench
