// Which experts a token of a mixture of experts goes to, and how much each of them counts.
#pragma once

#include "attend/kernels/common/host_device.h"
#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// What a router's logits become. Groups of experts are ranked by it too.
enum class RouterScores : uint8_t {
  kSoftmax,  // of all experts. A group counts as much as its best expert
  kSigmoid,  // of each expert alone. A group counts as much as its two best experts together
};

// What the weights of a token's experts are.
enum class RouterWeights : uint8_t {
  kOfAll,     // their scores: of a softmax the chosen experts' add up to less than 1
  kOfChosen,  // their scores, divided by the sum over the chosen
};

// Experts stand in groups of the same size, one after another; a token chooses among those of its best
// groups.
struct RouterGroups {
  int64_t num_groups = 1, top_groups = 1;

  bool limit() const { return top_groups < num_groups; }
};

// How a router chooses and weighs, beside its logits.
struct RouterRule {
  RouterScores scores = RouterScores::kSoftmax;
  RouterWeights weights_of = RouterWeights::kOfChosen;
  RouterGroups groups = {};
  float scale = 1.0f;  // of the weights
  // For benches, whose random weights choose unevenly. Not 0: experts rank by spread_rank(), whatever the
  // logits say, which still give the weights.
  uint32_t spread = 0;
};

// How an expert ranks for the token at a place of the call: hashed, so that tokens and layers choose evenly
// and apart. 0 to 2^24 - 1.
ATTEND_HOST_DEVICE inline float spread_rank(uint32_t spread, uint32_t token, uint32_t expert) {
  uint32_t hash = spread * 0x9e3779b9u ^ token * 0x85ebca6bu ^ expert * 0xc2b2ae35u;
  for (int i = 0; i < 2; ++i) {
    hash = (hash ^ hash >> 16) * 0x7feb352du;
    hash = (hash ^ hash >> 15) * 0x846ca68bu;
  }
  return static_cast<float>((hash ^ hash >> 16) >> 8);
}

// What the sum over the chosen sigmoid scores is increased by, lest it is 0 (as DeepSeek-V3 does).
inline constexpr float kSmallestSumOfSigmoids = 1e-20f;

// Experts that a token may choose among, and choose.
inline constexpr int64_t kMaxExperts = 512, kMaxExpertsPerToken = 32, kMaxExpertGroups = 32;

struct RouteArgs {
  TensorView logits;  // f32 [num_tokens, num_experts], contiguous
  RouterRule rule = {};
  // f32 [num_experts], of kSigmoid: added to the scores for the choice of groups and experts, not for the
  // weights; empty: nothing
  TensorView correction = {};
  TensorView experts;  // i32 [num_tokens, top_k], contiguous: the best one first; of equal ones the lowest
                       // expert
  TensorView weights;  // f32 [num_tokens, top_k], contiguous
};
// Scores and sums in float32; a softmax chooses by its logits, which rank alike. A token's experts and
// weights depend on its own logits alone. They are top_k different experts also where logits are not numbers.
// Throws Error(kInvalidArgument) for shapes and dtypes, for more experts than the limits above, for groups
// that do not divide the experts, that have fewer than two where two count, or of which too few are chosen
// for top_k experts.
void route(const RouteArgs& args, Stream& stream);
void check(const RouteArgs& args, const Stream& stream);

namespace reference {
void route(const RouteArgs& args);
}  // namespace reference

}  // namespace attend::kernels
#pragma GCC visibility pop
