#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "attend/kernels/common/element.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/kernels/moe/experts.h"
#include "attend/kernels/moe/spread_rank.h"

namespace attend::kernels::reference {
namespace {

// Rows of W x + b, indexed over the rows of all experts.
std::vector<double> multiply(std::span<const Linear> linears, int64_t first_row, int64_t num_rows,
                             const std::vector<double>& x) {
  std::vector<double> out;
  int64_t begin = 0;
  for (const Linear& linear : linears) {
    for (int64_t row = 0; row < linear.weight.out_features(); ++row) {
      if (begin + row < first_row || begin + row >= first_row + num_rows) continue;
      const std::vector<double> weights = weight_row(linear.weight, row);
      const double bias = linear.bias.empty() ? 0.0 : load(linear.bias, offset(linear.bias, row));
      out.push_back(std::inner_product(x.begin(), x.end(), weights.begin(), bias));
    }
    begin += linear.weight.out_features();
  }
  return out;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// arXiv 1606.08415.
double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

std::vector<double> activate(const ExpertGate& rule, const std::vector<double>& gate_up) {
  std::vector<double> inner(gate_up.size() / static_cast<size_t>(rule.num_products()));
  for (size_t j = 0; j < inner.size(); ++j) {
    if (rule.activation == ExpertActivation::kSilu) {
      inner[j] = gate_up[j] * sigmoid(gate_up[j]) * gate_up[inner.size() + j];
      continue;
    }
    if (rule.activation == ExpertActivation::kGeluTanh) {
      inner[j] = gelu_tanh(gate_up[j]) * gate_up[inner.size() + j];
      continue;
    }
    if (rule.activation == ExpertActivation::kRelu2) {
      inner[j] = std::max(gate_up[j], 0.0) * std::max(gate_up[j], 0.0);
      continue;
    }
    const double limit = double{rule.limit};
    const size_t gate_row = rule.alternates ? 2 * j : j,
                 up_row = rule.alternates ? 2 * j + 1 : inner.size() + j;
    const double gate = std::min(gate_up[gate_row], limit), up = std::clamp(gate_up[up_row], -limit, limit);
    inner[j] = (up + 1.0) * gate * sigmoid(double{rule.alpha} * gate);
  }
  return inner;
}

// Returns indices in descending order of rank, the lower index first if equal.
std::vector<int32_t> descending(const std::vector<double>& ranks) {
  std::vector<int32_t> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](int32_t i) { return ranks[static_cast<size_t>(i)]; });
  return order;
}

// Returns the experts of the best groups, best first.
std::vector<int32_t> order_in_best_groups(const std::vector<double>& ranks, const RouterRule& rule) {
  std::vector<int32_t> order = descending(ranks);
  const auto num_groups = static_cast<size_t>(rule.groups.num_groups);
  const size_t group_size = ranks.size() / num_groups;
  const auto find_group = [&](int32_t expert) { return static_cast<size_t>(expert) / group_size; };
  // A group's best experts come first, so the rank of a group sums its first one or two.
  const int num_counted = rule.scores == RouterScores::kSoftmax ? 1 : 2;
  std::vector<double> group_ranks(num_groups, 0.0);
  std::vector<int> counted(num_groups, 0);
  for (const int32_t expert : order)
    if (counted[find_group(expert)]++ < num_counted)
      group_ranks[find_group(expert)] += ranks[static_cast<size_t>(expert)];
  std::vector<int32_t> best = descending(group_ranks);
  best.resize(static_cast<size_t>(rule.groups.top_groups));
  std::erase_if(order, [&](int32_t expert) {
    return std::ranges::find(best, static_cast<int32_t>(find_group(expert))) == best.end();
  });
  return order;
}

}  // namespace

void route(const RouteArgs& args) {
  const int64_t num_experts = args.logits.shape[1], top_k = args.experts.shape[1];
  const RouterRule& rule = args.rule;
  const bool softmax = rule.scores == RouterScores::kSoftmax,
             over_all_experts = rule.weights == RouterWeights::kAllExperts;
  for (int64_t token = 0; token < args.logits.shape[0]; ++token) {
    const std::vector<double> logits = load_row(args.logits, offset(args.logits, token), num_experts);
    std::vector<double> scores = logits, ranks = logits;
    const double largest = *std::ranges::max_element(logits);
    for (double& score : scores) score = softmax ? std::exp(score - largest) : sigmoid(score);
    if (!softmax || !args.correction.empty()) {
      ranks = scores;
      const double total = softmax ? std::accumulate(scores.begin(), scores.end(), 0.0) : 1.0;
      for (double& rank : ranks) rank /= total;
      for (size_t i = 0; i < ranks.size() && !args.correction.empty(); ++i)
        ranks[i] += load(args.correction, static_cast<int64_t>(i));
    }
    for (size_t i = 0; i < ranks.size() && rule.spread != 0; ++i)
      ranks[i] = spread_rank(rule.spread, static_cast<uint32_t>(token), static_cast<uint32_t>(i));
    const std::vector<int32_t> order = order_in_best_groups(ranks, rule);
    const auto score = [&](int64_t rank) {
      return scores[static_cast<size_t>(order[static_cast<size_t>(rank)])];
    };
    double sum = softmax ? 0.0 : over_all_experts ? 1.0 : double{rule.sum_epsilon};
    if (softmax && over_all_experts) sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    if (!over_all_experts)
      for (int64_t i = 0; i < top_k; ++i) sum += score(i);
    const auto sum_of_near = [&](int64_t rank) {
      const auto own = static_cast<size_t>(order[static_cast<size_t>(rank)]);
      double near = 0.0;
      for (size_t e = 0; e < logits.size(); ++e) {
        if (rank > 0 && static_cast<int32_t>(e) == order[0]) continue;
        const double distance = (logits[own] - logits[e]) / std::max(std::abs(logits[e]), logits[own]);
        if (!(distance > double{rule.near})) near += scores[e];
      }
      return near;
    };
    for (int64_t i = 0; i < top_k; ++i) {
      if (rule.weights == RouterWeights::kNearExperts) sum = sum_of_near(i);
      args.experts[token].as<int32_t>()[i] = order[static_cast<size_t>(i)];
      const double scale =
          args.expert_scales.empty() ? 1.0 : load(args.expert_scales, order[static_cast<size_t>(i)]);
      args.weights[token].as<float>()[i] = static_cast<float>(score(i) / sum * double{rule.scale} * scale);
    }
  }
}

void moe_experts(const MoeExpertsArgs& args) {
  const auto [num_experts, top_k, hidden_size, intermediate_size] = args.shape;
  const int64_t rows = args.gate.num_products() * intermediate_size;
  for (int64_t token = 0; token < args.x.shape[0]; ++token) {
    const std::vector<double> x = load_row(args.x, offset(args.x, token), hidden_size);
    std::vector<double> sum(x.size(), 0.0);
    for (int64_t i = 0; i < top_k; ++i) {
      const int64_t expert = args.experts[token].as<const int32_t>()[i];
      const auto weight = static_cast<double>(args.weights[token].as<const float>()[i]);
      std::vector<double> read = x;
      if (args.weights_scale_input)
        for (double& element : read) element *= weight;
      const std::vector<double> gate_up = multiply(args.linears.gate_up, expert * rows, rows, read);
      const std::vector<double> inner = activate(args.gate, gate_up);
      const std::vector<double> out = multiply(args.linears.down, expert * hidden_size, hidden_size, inner);
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += (args.weights_scale_input ? 1.0 : weight) * out[j];
    }
    for (size_t j = 0; j < sum.size(); ++j) {
      const int64_t to = offset(args.out, token, static_cast<int64_t>(j));
      store(args.out, to, sum[j] + (args.accumulate ? load(args.out, to) : 0.0));
    }
  }
}

}  // namespace attend::kernels::reference
