// A pool of any kind, before there is one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "attend/kv/cache_spec.h"
#include "attend/kv/kv_pool.h"

#pragma GCC visibility push(default)
namespace attend {

// Config of a pool in two halves: layers with a sliding window keep only the tokens of their windows.
struct SwaKvPoolConfig {
  // Layers of each half, numbered from 0; page size, dtype and device are the same in both.
  MhaKvPool::Config full, swa;
  std::vector<bool> windowed;  // [layers of the model]: of which half each one is
  // Tokens of the window half for each of the full half, above 0 and at most 1: set_num_pages sizes by it.
  double swa_full_tokens_ratio = 0.8;
  // But no fewer, as long as the full half has as many: what one request may need, its window and a chunk.
  int min_swa_tokens = 0;
};

using KvPoolConfig = std::variant<MhaKvPool::Config, MlaKvPool::Config, SwaKvPoolConfig>;

// Size of the half for layers with a window; see SwaKvPoolConfig.
struct SwaHalf {
  double full_tokens_ratio = 0.8;
  int min_tokens = 0;
};

// A pool for all layers of these groups, without pages yet; a layer of the pool is the number of the model's
// layer among them. GPUs keep a token's heads together, CPUs a head's tokens. With `swa`, and if
// has_window_half(caches), layers with a window get a half of their own. Throws Error(kUnsupported) if groups
// differ in what a pool stores, naming two layers.
KvPoolConfig make_kv_pool_config(std::span<const CacheSpec> caches, int page_size, DType kv_dtype,
                                 Device device = {}, const std::optional<SwaHalf>& swa = {});

// `slot_map`: for a pool of two halves; see SwaKvPool.
std::unique_ptr<KvPool> make_kv_pool(const KvPoolConfig& config, const TensorView& slot_map = {});
size_t kv_pool_bytes(const KvPoolConfig& config);
// Sets num_pages, the padding page included; in a pool of two halves those of the full half.
void set_num_pages(KvPoolConfig& config, int num_pages);
// Sets the scales of the model's layers; none: all 1. In a pool whose K and V share a row they have to be
// equal. Throws Error(kInvalidArgument) for another number of layers.
void set_kv_scales(KvPoolConfig& config, std::span<const KvScales> scales);
// Bytes that one more page takes: on average, where the halves of a pool grow at different rates.
double kv_page_bytes(KvPoolConfig config);

}  // namespace attend
#pragma GCC visibility pop
