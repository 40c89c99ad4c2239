#include "attend/kernels/gemm/cpu/low_rank.h"

#include <algorithm>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/gemm/cpu/linear.h"

namespace attend::kernels::cpu {
namespace {

// Outputs of a task of the second job. Its sums are on the stack.
constexpr int64_t kTaskOutputs = 256;

// Returns the terms of a product in a run.
View<const LowRankTerm> terms_of(const AdapterRun& run, const LowRankProduct& product) {
  if (product.adapter_index < 0) return {};
  return run.adapter->layers[static_cast<size_t>(product.adapter_index)];
}

// Calls fn(term, rows of A x) for each term. `place`: index of the product.
template <class Fn>
void for_each_term(const AdapterRun& run, const LowRankProduct& product, int64_t place,
                   const AdapterBatch& adapters, const Fn& fn) {
  int64_t column = place * run.adapter->max_rank;
  for (const LowRankTerm& term : terms_of(run, product)) {
    fn(term, adapters.products[run.first_token].as<float>() + column);
    column += term.rank();
  }
}

// Adds scale * B (A x) to outputs [begin, end) of the layer.
void add_outputs(const LowRankTerm& term, const float* products, int64_t stride, int64_t begin, int64_t end,
                 const TensorView& out, const AdapterRun& run, MultiplyTransposed multiply) {
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
            .num_tokens = run.num_tokens,
            .in_features = term.rank(),
            .out_features = count});
  for (int64_t token = 0; token < run.num_tokens; ++token) {
    float* const row = out[run.first_token + token].as<float>() + first;
    for (int64_t i = 0; i < count; ++i) row[i] += term.scale * sums[token][i];
  }
}

}  // namespace

void add_low_rank(const TensorView& x, View<const LowRankProduct> products, const AdapterBatch& adapters,
                  Isa isa) {
  const MultiplyTransposed multiply = multiply_transposed(isa);
  const auto num_runs = std::ssize(adapters.runs);
  const int64_t stride = adapters.products.strides[0];
  // A x.
  parallel_for(num_runs * std::ssize(products), [&](int64_t task, int) {
    const AdapterRun& run = adapters.runs[static_cast<size_t>(task % num_runs)];
    const int64_t place = task / num_runs;
    for_each_term(run, products[static_cast<size_t>(place)], place, adapters,
                  [&](const LowRankTerm& term, float* to) {
                    multiply({.x = x[run.first_token].as<const float>(),
                              .x_stride = x.strides[0],
                              .weight = term.a.data,
                              .weight_stride = term.a.strides[0],
                              .dtype = term.a.dtype,
                              .out = to,
                              .out_stride = stride,
                              .num_tokens = run.num_tokens,
                              .in_features = x.shape[1],
                              .out_features = term.rank()});
                  });
  });
  int64_t first_tasks[kMaxLowRankProducts + 1] = {};  // of each product
  for (size_t i = 0; i < products.size(); ++i)
    first_tasks[i + 1] = first_tasks[i] + ceil_div(products[i].out.shape[1], kTaskOutputs) * num_runs;
  parallel_for(first_tasks[products.size()], [&](int64_t task, int) {
    int64_t place = 0;
    while (task >= first_tasks[place + 1]) ++place;
    const LowRankProduct& product = products[static_cast<size_t>(place)];
    // Neighboring tasks have the same outputs of several runs, which often share B.
    const int64_t index = task - first_tasks[place], begin = index / num_runs * kTaskOutputs;
    const AdapterRun& run = adapters.runs[static_cast<size_t>(index % num_runs)];
    for_each_term(run, product, place, adapters, [&](const LowRankTerm& term, const float* from) {
      add_outputs(term, from, stride, begin, std::min(begin + kTaskOutputs, product.out.shape[1]),
                  product.out, run, multiply);
    });
  });
}

}  // namespace attend::kernels::cpu
