#include "attend/kernels/gemm/low_rank.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/gemm/cpu/low_rank.h"

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

}  // namespace

void add_low_rank(const TensorView& x, View<const LowRankProduct> products, const AdapterBatch& adapters,
                  Stream& stream) {
  const auto changes = [](const LowRankProduct& product) { return product.adapter_index >= 0; };
  if (adapters.empty() || std::ranges::none_of(products, changes)) return;
  if (stream.device.type != DeviceType::kCpu)
    fail(ErrorCode::kUnsupported, "add_low_rank() on ", stream.device, ": attend applies adapters on CPUs");
  require(std::ssize(products) <= kMaxLowRankProducts, products.size(), " products: expected at most ",
          kMaxLowRankProducts);
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require_rank("adapters.products", adapters.products, 2);
  require_shape("adapters.products", adapters.products, {x.shape[0], adapters.products.shape[1]});
  require_dtype("adapters.products", adapters.products, DType::kF32);
  for (const LowRankProduct& product : products) {
    require_rank("out", product.out, 2);
    require_shape("out", product.out, {x.shape[0], product.out.shape[1]});
    require_activation_on(stream, "out", product.out);
  }
  for (const AdapterRun& run : adapters.runs) check_run(run, x, products, adapters);
  cpu::add_low_rank(x, products, adapters, cpu::detect_isa());
}

}  // namespace attend::kernels
