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
  kLatent,  // one latent row per token, which K and V share (MLA), and the key of an indexer
  kState,   // one recurrent state per request, and the last inputs of a convolution
};

// Recurrent state of one layer, per request.
struct StateShape {
  int num_heads = 0, head_dim_v = 0, head_dim_k = 0;  // f32 [num_heads, head_dim_v, head_dim_k]
  int conv_inputs = 0, conv_channels = 0;  // [conv_inputs, conv_channels] of the activations' dtype

  bool operator==(const StateShape&) const = default;
};

// Layers that share cache allocation.
struct CacheSpec {
  CacheKind kind = CacheKind::kFull;
  std::vector<int> layers = {};  // layer ids, ascending
  int num_kv_heads = 0;          // per rank; kLatent: 1
  int head_dim_qk = 0;           // kLatent: elements of a row
  int head_dim_v = 0;            // kLatent: elements of a row before its rotated part
  int index_dim = 0;             // kLatent: elements of an index key; 0: no index keys
  int window_left = -1;          // kWindow: the widest of the layers, inclusive; else -1
  StateShape state = {};         // kState

  bool operator==(const CacheSpec&) const = default;
};

// Adds a layer with a higher id than all others to the group with the same kind and geometry, or to a new
// group.
void add_layer(std::vector<CacheSpec>& caches, const CacheSpec& layer);

// Returns the groups that store K and V of tokens, or those that store states of requests.
std::vector<CacheSpec> token_caches(std::span<const CacheSpec> caches);
std::vector<CacheSpec> state_caches(std::span<const CacheSpec> caches);

// Returns whether some layers with K/V have a sliding window and others do not, so that a pool of two halves
// saves memory.
bool has_window_half(std::span<const CacheSpec> caches);
// Returns the widest window, inclusive; 0 without a window.
int widest_window_left(std::span<const CacheSpec> caches);

}  // namespace attend
#pragma GCC visibility pop
