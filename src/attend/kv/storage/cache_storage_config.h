// CacheStorageConfig: the memory of a model's cache groups on one executor, before it is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attend/kv/cache_spec.h"
#include "attend/kv/kv_pool.h"

#pragma GCC visibility push(default)
namespace attend {

// Size of the half for layers with a window.
struct SwaHalf {
  // Tokens of the window half for each of the full half, above 0 and at most 1.
  double full_tokens_ratio = 0.8;
  // But no fewer, as long as the full half has as many: what one request may need, its window and a chunk.
  int min_tokens = 0;
};

// Data: executors over the same token slots have the same page_size and num_pages. A layer of the KV pool is
// the number of the model's layer among those of the groups.
struct CacheStorageConfig {
  std::vector<CacheSpec> caches;  // as ModelSpec::caches()
  int page_size = 16;
  DType dtype = DType::kBF16;  // of K and V; kU8: scaled latent rows
  Device device = {};
  std::optional<SwaHalf> window_half = {};  // none: layers with a window keep all tokens
  int num_pages = 2;                        // of token slots, the padding page included
  std::vector<KvScales> scales = {};        // [layers of the KV pool], or empty: all 1

  // Pages of the window half, the padding page included; 0: there is none.
  int num_window_pages() const;
  // Bytes of the device's memory, the map to the window half included. Throws Error(kInvalidArgument) for
  // sizes that no pool has.
  size_t num_bytes() const;
  // Bytes that one more page takes: on average, where the halves of a pool grow at different rates.
  double page_bytes() const;
  // Bytes of one token, all layers together.
  size_t token_bytes() const;
};

// GPUs keep a token's heads together, CPUs a head's tokens. With `swa`, and if has_window_half(caches),
// layers with a window get a half of their own. Throws Error(kUnsupported) if groups differ in what a pool
// stores, naming two layers; Error(kInvalidArgument) without groups, and for a ratio out of range.
CacheStorageConfig make_cache_storage_config(std::vector<CacheSpec> caches, int page_size, DType dtype,
                                             Device device = {}, const std::optional<SwaHalf>& swa = {});

// Sets the scales of the pool's layers; none: all 1. In a pool whose K and V share a row they have to be
// equal. Throws Error(kInvalidArgument) for another number of layers.
void set_kv_scales(CacheStorageConfig& config, std::span<const KvScales> scales);

// Allocates the pool. `slot_map`: for a window half; see SwaKvPool. Throws as MhaKvPool.
std::unique_ptr<KvPool> make_kv_pool(const CacheStorageConfig& config, const TensorView& slot_map = {});

}  // namespace attend
#pragma GCC visibility pop
