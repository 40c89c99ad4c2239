#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/moe/cpu/experts.h"
#include "attend/kernels/moe/cuda/moe.h"
#include "attend/kernels/moe/experts.h"

namespace attend::kernels {

namespace {

void check_groups(const RouterRule& rule, int64_t num_experts, int64_t top_k) {
  const auto [num_groups, top_groups] = rule.groups;
  require(num_groups >= 1 && num_groups <= kMaxExpertGroups && num_experts % num_groups == 0,
          "groups: ", num_groups, " of ", num_experts,
          " experts: expected a divisor of the number of experts, 1 to ", kMaxExpertGroups);
  require(top_groups >= 1 && top_groups <= num_groups, "groups: ", top_groups, " selected of ", num_groups,
          ": expected 1 to ", num_groups);
  const int64_t group_size = num_experts / num_groups;
  require(top_groups * group_size >= top_k, "groups: ", top_groups, " selected, with ", group_size,
          " experts each: a token selects ", top_k);
  require(!rule.groups.is_limited() || rule.scores == RouterScores::kSoftmax || group_size >= 2,
          "groups of one expert: sigmoid scores rank a group by its two best experts");
}

}  // namespace

void check(const RouteArgs& args, const Stream& stream) {
  require_rank("logits", args.logits, 2);
  const int64_t num_tokens = args.logits.shape[0], num_experts = args.logits.shape[1];
  const int64_t top_k = args.experts.shape[1];
  require_shape("experts", args.experts, {num_tokens, top_k});
  require(num_experts >= 1 && num_experts <= kMaxExperts, "logits ", args.logits, ": expected 1 to ",
          kMaxExperts, " experts, not ", num_experts);
  require(top_k >= 1 && top_k <= kMaxExpertsPerToken && top_k <= num_experts, "experts ", args.experts,
          ": expected 1 to ", std::min(kMaxExpertsPerToken, num_experts), " per token, not ", top_k);
  require_shape("weights", args.weights, {num_tokens, top_k});
  check_groups(args.rule, num_experts, top_k);
  require(args.rule.weights != RouterWeights::kNearExperts ||
              (args.rule.scores == RouterScores::kSoftmax && top_k == 2),
          "weights over near experts: expected softmax scores and 2 experts per token, not ", top_k);
  if (!args.correction.empty()) {
    require(args.rule.scores == RouterScores::kSigmoid || !args.rule.groups.is_limited(), "correction ",
            args.correction, ": expected only with sigmoid scores or without groups");
    require_shape("correction", args.correction, {num_experts});
    require_dtype("correction", args.correction, DType::kF32);
    require(args.correction.is_contiguous(), "correction ", args.correction,
            ": expected a contiguous tensor");
    require_on(stream, "correction", args.correction);
  }
  if (!args.expert_scales.empty()) {
    require_shape("expert_scales", args.expert_scales, {num_experts});
    require_dtype("expert_scales", args.expert_scales, DType::kF32);
    require(args.expert_scales.is_contiguous(), "expert_scales ", args.expert_scales,
            ": expected a contiguous tensor");
    require_on(stream, "expert_scales", args.expert_scales);
  }
  require_dtype("logits", args.logits, DType::kF32);
  require_dtype("experts", args.experts, DType::kI32);
  require_dtype("weights", args.weights, DType::kF32);
  for (const auto& [name, view] :
       {std::pair{"logits", &args.logits}, {"experts", &args.experts}, {"weights", &args.weights}}) {
    require(view->is_contiguous(), name, " ", *view, ": expected a contiguous tensor");
    require_on(stream, name, *view);
  }
}

void route(const RouteArgs& args, Stream& stream) {
  check(args, stream);
  if (args.experts.num_elements() == 0) return;
  if (const OnGpu gpu(stream); gpu) return cuda::route(args, stream);
  cpu::route(args);
}

bool shared_gate(const SharedGateArgs& args, Stream& stream) {
  if (args.x.shape[0] == 0) return false;
  if (const OnGpu gpu(stream); gpu) return cuda::shared_gate(args, stream);
  return false;
}

bool norm_route(const NormRouteArgs& args, Stream& stream) {
  if (args.batch_invariant || args.norm.empty() || args.x.shape[0] == 0) return false;
  if (const OnGpu gpu(stream); gpu) return cuda::norm_route(args, stream);
  return false;
}

}  // namespace attend::kernels
