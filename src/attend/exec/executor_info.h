// ExecutorInfo: choices and sizes of one executor, its progress while it records CUDA graphs, and the parts
// of its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attend/attention/resolver.h"
#include "attend/model/config/quantization.h"
#include "attend/tensor/device.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

// Describes one model on one rank. Printed at start and returned by the API.
struct ExecutorInfo {
  std::string model;  // architecture
  Device device;
  int rank = 0, num_ranks = 1;
  Hardware hardware;
  Resolution resolution;
  DType dtype = DType::kF32;  // of activations
  bool rounds_x = false;      // LinearArgs::rounds_x
  Quantization quantization;  // of the linear layers' weights, from config.json
  // Formats in the files or of dummy weights, ordered by number of elements, largest first. Empty:
  // config.json declares no quantized weights, or there is no file.
  std::vector<StoredFormat> weight_formats;
  DType kv_cache_dtype = DType::kF32;
  bool has_kv_scales = false;   // K and V are stored with the checkpoint's scales
  bool always_absorbs = false;  // latent attention: the prefill backend does not support contiguous keys
                                // Decode steps attend once to keys that several of their requests share if
                                // that saves at least this number of key reads; 0: never.
  int64_t cascade_min_keys = 0;
  size_t pool_bytes = 0;
  size_t kv_token_bytes = 0;    // K/V of one token, sum over all layers
  size_t state_bytes = 0;       // recurrent states of one request, or of a snapshot; 0: the model has none
  size_t state_pool_bytes = 0;  // states of all requests and snapshots
  size_t workspace_bytes = 0;   // of the attention backends
  // After the weights are loaded.
  size_t weight_bytes = 0;
  size_t expert_bytes = 0;  // part of weight_bytes that belongs to experts; a token uses only a few experts
  // After the graphs are recorded.
  std::vector<int> graph_sizes;    // batch sizes of decode steps that have a CUDA graph
  int num_verify_graph_sizes = 0;  // padded sizes of steps with drafts that have one
  size_t graph_bytes = 0;
};

// Progress of recording CUDA graphs: those of steps with drafts, then those of decode steps. The largest
// batch size is recorded first.
struct GraphProgressInfo {
  int batch_size;  // being recorded; after the end the last one
  int num_done;    // finished sizes, out of num_sizes
  int num_sizes;
  size_t num_bytes;  // device memory of the finished graphs
};

using GraphProgress = std::function<void(const GraphProgressInfo&)>;

// Memory of an engine that can be released while it computes nothing, and allocated again.
struct MemoryParts {
  bool weights = false;   // of all models, with activations and step arrays
  bool kv_cache = false;  // K/V, recurrent states, and workspaces of attention

  bool any() const { return weights || kv_cache; }
  MemoryParts operator|(MemoryParts other) const {
    return {weights || other.weights, kv_cache || other.kv_cache};
  }
  MemoryParts operator&(MemoryParts other) const {
    return {weights && other.weights, kv_cache && other.kv_cache};
  }
  MemoryParts operator-(MemoryParts other) const {
    return {weights && !other.weights, kv_cache && !other.kv_cache};
  }
  bool operator==(const MemoryParts&) const = default;
};

}  // namespace attend
#pragma GCC visibility pop
