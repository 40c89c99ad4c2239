// CacheStorageConfig: sizes of the memory of a model's cache groups on one executor, before it is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attend/kv/cache_spec.h"
#include "attend/kv/kv_pool.h"
#include "attend/kv/state/state_pool.h"

#pragma GCC visibility push(default)
namespace attend {

// Size of the window half.
struct SwaHalf {
  // Ratio of tokens in the window half to tokens in the full half, above 0 and at most 1.
  double full_tokens_ratio = 0.8;
  // Lower bound, limited by the size of the full half: tokens of one request's window and a chunk.
  int min_tokens = 0;
};

// Executors over the same token slots have the same page_size and num_pages. The layers of the KV pool are
// the layers of all groups with K/V, numbered in ascending order.
struct CacheStorageConfig {
  std::vector<CacheSpec> caches;  // token_caches() of ModelSpec::caches()
  int page_size = 16;
  DType dtype = DType::kBF16;  // dtype of K and V; kU8: scaled latent rows
  Device device = {};
  std::optional<SwaHalf> window_half = {};  // none: sliding-window layers keep all tokens
  int num_pages = 2;                        // pages of token slots, including the padding page
  std::vector<KvScales> scales = {};        // [layers of the KV pool], or empty: all 1
  // Recurrent states. Without slots, or if the model has none, there is no state pool.
  StatePool::Config states = {};

  // Pages of the window half, including the padding page; 0: no window half.
  int num_window_pages() const;
  bool has_states() const { return !states.caches.empty(); }
  // Bytes of device memory, including the map to the window half, without states. Throws
  // Error(kInvalidArgument) for invalid sizes.
  size_t num_bytes() const;
  // Mean bytes per additional page (the halves of a pool grow at different rates).
  double page_bytes() const;
  // Bytes of one token, sum over all layers.
  size_t token_bytes() const;
};

// Without slots of states, which the caller sets. Chooses KvLayout::kTokenMajor on GPUs and kHeadMajor on
// CPUs. With `swa`, and if has_window_half(caches),
// sliding-window layers use a window half. Throws Error(kUnsupported), naming two layers, if groups of one
// half, or latent rows, differ in geometry; Error(kInvalidArgument) without groups, and for a ratio out of
// range.
CacheStorageConfig make_cache_storage_config(const std::vector<CacheSpec>& caches, int page_size, DType dtype,
                                             Device device = {}, const std::optional<SwaHalf>& swa = {});

// Sets the scales of the pool's layers; empty: all 1. If K and V share a row, their scales must be equal.
// Throws Error(kInvalidArgument) for another number of layers.
void set_kv_scales(CacheStorageConfig& config, std::span<const KvScales> scales);

// Allocates the pool. `slot_map`: for a window half, see SwaKvPool. Throws the errors of MhaKvPool.
std::unique_ptr<KvPool> make_kv_pool(const CacheStorageConfig& config, const TensorView& slot_map = {});

}  // namespace attend
#pragma GCC visibility pop
