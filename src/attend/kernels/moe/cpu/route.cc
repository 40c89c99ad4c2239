#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <span>

#include "attend/base/parallel.h"
#include "attend/kernels/moe/cpu/experts.h"
#include "attend/kernels/moe/spread_rank.h"

namespace attend::kernels::cpu {
namespace {

using ExpertSet = std::bitset<kMaxExperts>;

// Returns the index of the largest rank that is not in `taken`, the first one if equal. NaN ranks last.
int find_best(std::span<const float> ranks, const ExpertSet& taken) {
  int best = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (taken[i]) continue;
    const bool first_number =
        best < 0 || (std::isnan(ranks[static_cast<size_t>(best)]) && !std::isnan(ranks[i]));
    if (first_number || ranks[i] > ranks[static_cast<size_t>(best)]) best = static_cast<int>(i);
  }
  return best;
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float group_rank(std::span<const float> ranks, RouterScores scores) {
  const int best = find_best(ranks, {});
  const float largest = ranks[static_cast<size_t>(best)];
  if (scores == RouterScores::kSoftmax) return largest;
  ExpertSet taken;
  taken.set(static_cast<size_t>(best));
  return largest + ranks[static_cast<size_t>(find_best(ranks, taken))];
}

// Marks the experts of all groups except the best ones as taken.
ExpertSet outside_best_groups(std::span<const float> ranks, const RouterRule& rule) {
  ExpertSet taken;
  if (!rule.groups.is_limited()) return taken;
  const size_t group_size = ranks.size() / static_cast<size_t>(rule.groups.num_groups);
  std::array<float, kMaxExpertGroups> group_ranks;
  const auto num_groups = static_cast<size_t>(rule.groups.num_groups);
  for (size_t g = 0; g < num_groups; ++g)
    group_ranks[g] = group_rank(ranks.subspan(g * group_size, group_size), rule.scores);
  ExpertSet best;
  for (int64_t i = 0; i < rule.groups.top_groups; ++i)
    best.set(static_cast<size_t>(find_best({group_ranks.data(), num_groups}, best)));
  for (size_t i = 0; i < ranks.size(); ++i) taken[i] = !best[i / group_size];
  return taken;
}

void weigh_by_softmax(std::span<const float> logits, const RouterRule& rule, std::span<float> weights) {
  const float largest = *std::ranges::max_element(weights);
  float sum = 0.0f;
  for (const float logit :
       rule.weights == RouterWeights::kAllExperts ? logits : std::span<const float>(weights))
    sum += std::exp(logit - largest);
  for (float& weight : weights) weight = std::exp(weight - largest) / sum * rule.scale;
}

void weigh_by_sigmoid(const RouterRule& rule, std::span<float> weights) {
  float sum = rule.weights == RouterWeights::kAllExperts ? 1.0f : rule.sum_epsilon;
  for (float& weight : weights) {
    weight = sigmoid(weight);
    if (rule.weights == RouterWeights::kChosenExperts) sum += weight;
  }
  for (float& weight : weights) weight = weight / sum * rule.scale;
}

void weigh_by_near(std::span<const float> logits, const RouterRule& rule, std::span<const int32_t> experts,
                   std::span<float> weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    const float own = logits[static_cast<size_t>(experts[i])];
    float sum = 0.0f;
    for (size_t e = 0; e < logits.size(); ++e) {
      if (i > 0 && static_cast<int32_t>(e) == experts[0]) continue;
      const float other = logits[e];
      if (!((own - other) / std::max(std::abs(other), own) > rule.near)) sum += std::exp(other - own);
    }
    weights[i] = rule.scale / sum;
  }
}

void route_token(int64_t token, std::span<const float> logits, const RouteArgs& args,
                 std::span<int32_t> experts, std::span<float> weights) {
  const bool softmax = args.rule.scores == RouterScores::kSoftmax;
  std::array<float, kMaxExperts> scores;
  std::span<const float> ranks = logits;
  // Without a term added to sigmoids, logits rank the experts in the same order, and distinguish large values
  // better.
  if (!softmax && (!args.correction.empty() || args.rule.groups.is_limited())) {
    const float* const correction = args.correction.empty() ? nullptr : args.correction.as<const float>();
    for (size_t i = 0; i < logits.size(); ++i)
      scores[i] = sigmoid(logits[i]) + (correction == nullptr ? 0.0f : correction[i]);
    ranks = std::span(scores).first(logits.size());
  } else if (softmax && !args.correction.empty()) {
    const float largest = *std::ranges::max_element(logits);
    float sum = 0.0f;
    for (const float logit : logits) sum += std::exp(logit - largest);
    for (size_t i = 0; i < logits.size(); ++i)
      scores[i] = std::exp(logits[i] - largest) / sum + args.correction.as<const float>()[i];
    ranks = std::span(scores).first(logits.size());
  }
  if (args.rule.spread != 0) {
    for (size_t i = 0; i < logits.size(); ++i)
      scores[i] = spread_rank(args.rule.spread, static_cast<uint32_t>(token), static_cast<uint32_t>(i));
    ranks = std::span(scores).first(logits.size());
  }
  ExpertSet taken = outside_best_groups(ranks, args.rule);
  for (size_t i = 0; i < experts.size(); ++i) {
    experts[i] = find_best(ranks, taken);
    taken.set(static_cast<size_t>(experts[i]));
    weights[i] = logits[static_cast<size_t>(experts[i])];
  }
  if (args.rule.weights == RouterWeights::kNearExperts)
    weigh_by_near(logits, args.rule, experts, weights);
  else if (softmax)
    weigh_by_softmax(logits, args.rule, weights);
  else
    weigh_by_sigmoid(args.rule, weights);
  if (args.expert_scales.empty()) return;
  for (size_t i = 0; i < experts.size(); ++i) weights[i] *= args.expert_scales.as<const float>()[experts[i]];
}

}  // namespace

void route(const RouteArgs& args) {
  const int64_t num_experts = args.logits.shape[1], top_k = args.experts.shape[1];
  const auto get_row = []<class T>(T* data, int64_t row, int64_t size) {
    return std::span<T>(data + row * size, static_cast<size_t>(size));
  };
  parallel_for_rows(args.logits.shape[0], num_experts * top_k, [&](int64_t token) {
    route_token(token, get_row(args.logits.as<const float>(), token, num_experts), args,
                get_row(args.experts.as<int32_t>(), token, top_k),
                get_row(args.weights.as<float>(), token, top_k));
  });
}

}  // namespace attend::kernels::cpu
