#include "attend/kernels/gemm/low_rank.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/gemm/cpu/low_rank.h"
#include "attend/kernels/gemm/cuda/low_rank.h"
#include "attend/kernels/gemm/cuda/low_rank_table.h"

namespace attend::kernels {
namespace {

void check_term(const LowRankTerm& term, const TensorView& x, const TensorView& out) {
  require_rank("a", term.a, 2);
  require_rank("b", term.b, 2);
  require_shape("a", term.a, {x.shape[1], term.rank()});
  require_shape("b", term.b, {term.rank(), term.b.shape[1]});
  require_weight("a", term.a);
  require_weight("b", term.b);
  require(term.rank() <= kMaxAdapterRank, "a ", term.a, ": expected a rank of at most ", kMaxAdapterRank);
  require(term.first_out >= 0 && term.first_out + term.b.shape[1] <= out.shape[1], "b ", term.b,
          ": outputs from ", term.first_out, " on exceed those of ", out);
}

void check_run(const AdapterRun& run, const TensorView& x, View<const LowRankProduct> products,
               const AdapterBatch& adapters) {
  require(run.adapter != nullptr, "adapters: a run without an adapter");
  require(run.first_token >= 0 && run.num_tokens >= 0 && run.num_tokens <= kMaxRunTokens &&
              run.first_token + run.num_tokens <= x.shape[0],
          "adapters: ", run.num_tokens, " tokens from ", run.first_token, " on: expected at most ",
          kMaxRunTokens, " of the ", x.shape[0], " tokens of x");
  require(kMaxLowRankProducts * run.adapter->max_rank <= adapters.products.shape[1], "adapters.products ",
          adapters.products, ": expected a width of at least ", kMaxLowRankProducts * run.adapter->max_rank);
  for (const LowRankProduct& product : products) {
    if (product.adapter_index < 0) continue;
    require(product.adapter_index < std::ssize(run.adapter->layers), "adapter_index ", product.adapter_index,
            ": the adapter has ", run.adapter->layers.size(), " layers");
    int64_t rank = 0;
    for (const LowRankTerm& term : run.adapter->layers[static_cast<size_t>(product.adapter_index)]) {
      check_term(term, x, product.out);
      rank += term.rank();
    }
    require(rank <= run.adapter->max_rank, "max_rank ", run.adapter->max_rank, ": layer ",
            product.adapter_index, " has a rank of ", rank);
  }
}

bool changes(View<const LowRankProduct> products, const AdapterBatch& adapters) {
  return !adapters.empty() && std::ranges::any_of(products, [](const LowRankProduct& product) {
    return product.adapter_index >= 0;
  });
}

void check_products(const TensorView& x, View<const LowRankProduct> products, const Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  for (const LowRankProduct& product : products) {
    require_rank("out", product.out, 2);
    require_shape("out", product.out, {x.shape[0], product.out.shape[1]});
    require_activation_on(stream, "out", product.out);
  }
}

void check_on_gpu(const LowRankInput& input, View<const LowRankProduct> products,
                  const AdapterBatch& adapters, const Stream& stream) {
  require(products.size() == 1, products.size(), " products: a GPU adds to one at a time");
  require(adapters.arrays.header != nullptr && adapters.arrays.max_segments >= 0,
          "adapters: expected arrays in the memory of ", stream.device);
  const TensorView &x = input.x, &out = products.front().out;
  check_products(x, products, stream);
  require(out.dtype == x.dtype || out.dtype == DType::kF32, "out ", out, ": expected ", x.dtype,
          " or float32");
  const InputNorm& norm = input.norm;
  if (norm.weight.empty()) return;
  require(norm.deferred, "x: expected no norm, or a deferred one");
  require_shape("normalized", norm.normalized, {x.shape[0], x.shape[1]});
  require_dtype("normalized", norm.normalized, x.dtype);
  require_shape("partial_squares", norm.partial_squares, {x.shape[0], x.shape[1] / kPartialSquaresWidth});
}

void check_on_cpu(const LowRankInput& input, View<const LowRankProduct> products,
                  const AdapterBatch& adapters, const Stream& stream) {
  const TensorView& x = input.x;
  require(std::ssize(products) <= kMaxLowRankProducts, products.size(), " products: expected at most ",
          kMaxLowRankProducts);
  require(input.norm.weight.empty(), "x: a CPU expects no norm");
  check_products(x, products, stream);
  require_rank("adapters.products", adapters.products, 2);
  require_shape("adapters.products", adapters.products, {x.shape[0], adapters.products.shape[1]});
  require_dtype("adapters.products", adapters.products, DType::kF32);
  for (const AdapterRun& run : adapters.runs) check_run(run, x, products, adapters);
}

}  // namespace

int low_rank_segment_tokens(int64_t num_tokens, bool in_graph) {
  return cuda::choose_segment_tokens(num_tokens, in_graph);
}

DeviceAdapter copy_to(const LowRankAdapter& adapter, DType dtype, Device device) {
  require(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16, "adapters in ", dtype,
          ": expected float32, float16 or bfloat16");
  const cuda::LowRankTable table(adapter, dtype);
  const Tensor memory = attend::cuda::empty({table.num_bytes()}, DType::kU8, device);
  const Tensor host = Tensor::zeros({table.num_bytes()}, DType::kU8);
  table.write(static_cast<std::byte*>(host.view().data), reinterpret_cast<uintptr_t>(memory.view().data));
  const attend::cuda::DeviceScope scope(device);
  attend::cuda::OwnedStream stream(device);
  attend::cuda::copy(host, memory, stream.get());
  attend::cuda::synchronize(stream.get());
  return {.adapter = {.layers = {},
                      .max_rank = adapter.max_rank,
                      .table = memory.view().data,
                      .row_floats = table.row_floats()},
          .memory = memory};
}

void shrink_low_rank(const LowRankInput& input, View<const LowRankProduct> products,
                     const AdapterBatch& adapters, Stream& stream) {
  if (!changes(products, adapters)) return;
  if (const OnGpu gpu(stream); gpu) {
    check_on_gpu(input, products, adapters, stream);
    return cuda::shrink_low_rank(input, products.front(), adapters.arrays, stream);
  }
  check_on_cpu(input, products, adapters, stream);
  cpu::shrink_low_rank(input.x, products, adapters, cpu::detect_isa());
}

void expand_low_rank(const LowRankInput& input, View<const LowRankProduct> products,
                     const AdapterBatch& adapters, Stream& stream) {
  if (!changes(products, adapters)) return;
  if (const OnGpu gpu(stream); gpu) {
    check_on_gpu(input, products, adapters, stream);
    return cuda::expand_low_rank(input, products.front(), adapters.arrays, stream);
  }
  check_on_cpu(input, products, adapters, stream);
  cpu::expand_low_rank(products, adapters, cpu::detect_isa());
}

bool expand_low_rank_silu_mul(const LowRankInput& input, const LowRankProduct& product,
                              const AdapterBatch& adapters, const TensorView& out, Stream& stream) {
  const OnGpu gpu(stream);
  if (!gpu || !changes({&product, 1}, adapters)) return false;
  check_on_gpu(input, {&product, 1}, adapters, stream);
  require_rank("out", out, 2);
  require_shape("out", out, {product.out.shape[0], product.out.shape[1] / 2});
  require_activation_on(stream, "out", out);
  if (!cuda::supports_silu_mul(input, product, adapters.arrays, out)) return false;
  cuda::expand_low_rank_silu_mul(input, product, adapters.arrays, out, stream);
  return true;
}

}  // namespace attend::kernels
