// CacheSpec: describes the cache of a group of a model's layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#pragma GCC visibility push(default)
namespace attend {

enum class CacheKind : uint8_t {
  kFull,    // K and V of every token
  kWindow,  // K and V of the tokens in the next query's window
  kLatent,  // one latent row per token, which K and V share (MLA)
};

// Layers that share cache allocation.
struct CacheSpec {
  CacheKind kind = CacheKind::kFull;
  std::vector<int> layers = {};  // layer ids, ascending
  int num_kv_heads = 0;          // per rank; kLatent: 1
  int head_dim_qk = 0;           // kLatent: elements of a row
  int head_dim_v = 0;            // kLatent: elements of a row before its rotated part
  int window_left = -1;          // kWindow: the widest of the layers, inclusive; else -1

  bool operator==(const CacheSpec&) const = default;
};

// Adds a layer with a higher id than all others to the group with the same kind and geometry, or to a new
// group.
void add_layer(std::vector<CacheSpec>& caches, const CacheSpec& layer);

// Returns whether some layers have a sliding window and others do not, so that a pool of two halves saves
// memory.
bool has_window_half(std::span<const CacheSpec> caches);
// Returns the widest window, inclusive; 0 without a window.
int widest_window_left(std::span<const CacheSpec> caches);

}  // namespace attend
#pragma GCC visibility pop
