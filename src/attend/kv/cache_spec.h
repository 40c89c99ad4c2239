// CacheSpec: what a group of a model's layers keeps of each token, as data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#pragma GCC visibility push(default)
namespace attend {

enum class CacheKind : uint8_t {
  kFull,    // K and V of every token
  kWindow,  // K and V of every token that the next query's window reaches
  kLatent,  // one latent row of every token, which K and V share (MLA)
};

// Layers whose cache is allocated together.
struct CacheSpec {
  CacheKind kind = CacheKind::kFull;
  std::vector<int> layers = {};  // of the model, ascending
  int num_kv_heads = 0;          // per rank; kLatent: 1
  int head_dim_qk = 0;           // kLatent: elements of a row
  int head_dim_v = 0;            // kLatent: elements of a row before its rotated part
  int window_left = -1;          // kWindow: the widest of the layers, inclusive; else -1

  bool operator==(const CacheSpec&) const = default;
};

// Adds a layer above all others to the group of its kind and geometry, or as a group of its own.
void add_layer(std::vector<CacheSpec>& caches, const CacheSpec& layer);

// Whether some layers have a sliding window and others none, so that a pool in two halves saves memory.
bool has_window_half(std::span<const CacheSpec> caches);
// The widest window, inclusive; 0 without any.
int widest_window_left(std::span<const CacheSpec> caches);

}  // namespace attend
#pragma GCC visibility pop
