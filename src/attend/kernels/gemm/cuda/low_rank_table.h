// Adapters in the memory of a GPU, and the sizes of the kernels' tiles. Pure: works on any machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attend/base/math.h"
#include "attend/kernels/gemm/cuda/common/low_rank_entries.h"
#include "attend/kernels/gemm/low_rank.h"

namespace attend::kernels::cuda {

// Tokens of a segment. The large one is for prompts, in which it still leaves every SM a segment.
int choose_segment_tokens(int64_t num_tokens, bool in_graph);

struct LowRankGrid {
  int64_t x = 1, y = 1;
};
// CTAs that compute A x: one for each segment and K-block, or fewer that process several.
LowRankGrid choose_shrink_grid(int64_t in_features, const LowRankArrays& arrays, int num_sms);
// Outputs of a CTA, and CTAs that add B (A x): those of a segment, then segments or fewer.
int choose_expand_outs(int segment_tokens);
LowRankGrid choose_expand_grid(int64_t out_features, const LowRankArrays& arrays, int num_sms);
LowRankGrid choose_gate_grid(int64_t intermediate, const LowRankArrays& arrays, int num_sms);

// Table of an adapter's layers: a LowRankLayerEntry per layer and an empty one, then A and B of each layer. A
// of a layer is [rank, in_features], with the rows of all terms, and B of a term [num_outputs, rank], as in
// files. Padded with zeros: ranks to kRankMultiple, in_features to kInsMultiple, outputs to kOutsMultiple.
class LowRankTable {
 public:
  // `adapter` must outlive this object. Throws Error(kUnsupported) for a layer of more than kMaxTerms terms.
  LowRankTable(const LowRankAdapter& adapter, DType dtype);

  int64_t num_bytes() const { return num_bytes_; }
  int64_t row_floats() const { return row_floats_; }
  // Writes the table to `to`, zeros at first. `base`: address that the table will have on the GPU.
  void write(std::byte* to, uintptr_t base) const;

 private:
  struct Layer {
    int64_t a;                   // offset in bytes
    std::vector<int64_t> bs;     // of each term
    int64_t in_features, rank;   // padded
    std::vector<int64_t> ranks;  // padded, of each term
  };

  const LowRankAdapter& adapter_;
  DType dtype_;
  std::vector<Layer> layers_;
  int64_t num_bytes_ = 0, row_floats_ = 0;
};

}  // namespace attend::kernels::cuda
