// Attention problems small enough for manual results, with given scores and values.
#pragma once

#include <vector>

#include "attend/kernels/attention/attention.h"

namespace attend::conformance {

// One request and one head unless the test changes it. With scale 1, q.k of every query is the key's score,
// and every element of a row of V is the key's value. K/V are contiguous.
class TinyAttention {
 public:
  // One key per score; the last `seqlen_q` of them belong to the new tokens.
  TinyAttention(int seqlen_q, std::vector<float> scores, std::vector<float> values);
  TinyAttention(const TinyAttention&) = delete;
  TinyAttention& operator=(const TinyAttention&) = delete;

  kernels::AttentionArgs args;

  // First element of the output, and LSE, of each token.
  struct Result {
    std::vector<float> out, lse;
  };
  Result run() const;

 private:
  static constexpr int kHeadDim = 8;
  std::vector<float> q_, k_, v_, out_, lse_;
  std::vector<int32_t> cu_seqlen_q_, seqlen_kv_, cu_seqlen_kv_;
};

// `count` keys with equal scores and the values 0, 1, 2, ...: the output is the mean position of visible
// keys, and e^LSE their number.
inline std::vector<float> equal_scores(int count) {
  return std::vector<float>(static_cast<size_t>(count), 0.0f);
}
std::vector<float> positions_as_values(int count);

}  // namespace attend::conformance
