#include "attend/kernels/gemm/cpu/low_rank.h"

#include <algorithm>
#include <vector>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/gemm/cpu/linear.h"
#include "attend/kernels/gemm/token_groups.h"

namespace attend::kernels::cpu {
namespace {

// Outputs of a task of the second job. Its sums are on the stack.
constexpr int64_t kTaskOutputs = 256;

// Calls fn(term, rows of A x) for each term of a product. `place`: index of the product.
template <class Fn>
void for_each_term(const TokenGroup& group, const LowRankProduct& product, int64_t place,
                   const AdapterBatch& adapters, const Fn& fn) {
  if (product.adapter_index < 0) return;
  int64_t column = place * group.adapter->max_rank;
  for (const LowRankTerm& term : group.adapter->layers[static_cast<size_t>(product.adapter_index)]) {
    fn(term, adapters.products[group.first].as<float>() + column);
    column += term.rank();
  }
}

// Adds scale * B (A x) to outputs [begin, end) of the layer. `tokens`: those of the group.
void add_outputs(const LowRankTerm& term, const float* products, int64_t stride, int64_t begin, int64_t end,
                 const TensorView& out, View<const int32_t> tokens, MultiplyTransposed multiply) {
  const int64_t first = std::max(begin, term.first_out);
  const int64_t count = std::min(end, term.first_out + term.b.shape[1]) - first;
  if (count <= 0) return;
  float sums[kMaxRunTokens][kTaskOutputs];
  multiply({.x = products,
            .x_stride = stride,
            .weight = term.b.slice(1, first - term.first_out, first - term.first_out + count).data,
            .weight_stride = term.b.strides[0],
            .dtype = term.b.dtype,
            .out = sums[0],
            .out_stride = kTaskOutputs,
            .num_tokens = std::ssize(tokens),
            .in_features = term.rank(),
            .out_features = count});
  for (size_t token = 0; token < tokens.size(); ++token) {
    float* const row = out[tokens[token]].as<float>() + first;
    for (int64_t i = 0; i < count; ++i) row[i] += term.scale * sums[token][i];
  }
}

// Groups of tokens that a task multiplies together, so that it reads A or B once. Valid until this thread's
// next call; also used by tasks of other threads.
const TokenGroups& group_tokens(const AdapterBatch& adapters) {
  thread_local TokenGroups groups;
  groups.build(adapters.runs, kMaxRunTokens);
  return groups;
}

}  // namespace

void shrink_low_rank(const TensorView& x, View<const LowRankProduct> products, const AdapterBatch& adapters,
                     Isa isa) {
  const MultiplyTransposed multiply = multiply_transposed(isa);
  const TokenGroups& grouped = group_tokens(adapters);
  const auto num_groups = std::ssize(grouped.groups);
  parallel_for(num_groups * std::ssize(products), [&](int64_t task, int) {
    const TokenGroup& group = grouped.groups[static_cast<size_t>(task % num_groups)];
    const int64_t place = task / num_groups;
    for_each_term(group, products[static_cast<size_t>(place)], place, adapters,
                  [&](const LowRankTerm& term, float* to) {
                    multiply({.x = x.as<const float>(),
                              .x_stride = x.strides[0],
                              .weight = term.a.data,
                              .weight_stride = term.a.strides[0],
                              .dtype = term.a.dtype,
                              .out = to,
                              .out_stride = adapters.products.strides[0],
                              .num_tokens = group.count,
                              .in_features = x.shape[1],
                              .out_features = term.rank(),
                              .x_rows = grouped.tokens_of(group).data()});
                  });
  });
}

void expand_low_rank(View<const LowRankProduct> products, const AdapterBatch& adapters, Isa isa) {
  const MultiplyTransposed multiply = multiply_transposed(isa);
  const TokenGroups& grouped = group_tokens(adapters);
  const auto num_groups = std::ssize(grouped.groups);
  int64_t first_tasks[kMaxLowRankProducts + 1] = {};  // of each product
  for (size_t i = 0; i < products.size(); ++i)
    first_tasks[i + 1] = first_tasks[i] + ceil_div(products[i].out.shape[1], kTaskOutputs) * num_groups;
  parallel_for(first_tasks[products.size()], [&](int64_t task, int) {
    int64_t place = 0;
    while (task >= first_tasks[place + 1]) ++place;
    const LowRankProduct& product = products[static_cast<size_t>(place)];
    const int64_t index = task - first_tasks[place], begin = index / num_groups * kTaskOutputs;
    const TokenGroup& group = grouped.groups[static_cast<size_t>(index % num_groups)];
    for_each_term(group, product, place, adapters, [&](const LowRankTerm& term, const float* from) {
      add_outputs(term, from, adapters.products.strides[0], begin,
                  std::min(begin + kTaskOutputs, product.out.shape[1]), product.out, grouped.tokens_of(group),
                  multiply);
    });
  });
}

}  // namespace attend::kernels::cpu
