#include "attend/kv/first_page_warmup.h"

#include <system_error>

namespace attend {
namespace {

// Writes zeros, which the pool's memory already contains.
void warm_up_page_1(const TensorView& cache) {
  const int64_t page_bytes = cache.strides[0] * static_cast<int64_t>(size_of(cache.dtype));
  *(static_cast<volatile char*>(cache.data) + page_bytes) = 0;
}

}  // namespace

FirstPageWarmup::FirstPageWarmup(const KvPool& pool, int num_layers) {
  try {
    thread_ = std::thread([&pool, num_layers] {
      for (int layer = 0; layer < num_layers; ++layer) {
        const LayerKv kv = pool.layer(layer);
        warm_up_page_1(kv.k);
        warm_up_page_1(kv.v);
      }
    });
  } catch (const std::system_error&) {
  }
}

FirstPageWarmup::~FirstPageWarmup() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace attend
