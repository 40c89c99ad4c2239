// ExecutorInfo: choices and sizes of one executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "attend/attention/resolver.h"
#include "attend/model/config/quantization.h"
#include "attend/tensor/device.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

// One model on one rank: printed at start, returned by the API.
struct ExecutorInfo {
  std::string model;  // architecture
  Device device;
  Hardware hardware;
  Resolution resolution;
  DType dtype = DType::kF32;  // of activations
  bool rounds_x = false;      // LinearArgs::rounds_x
  Quantization quantization;  // of the linear layers' weights, by config.json
  // Formats in the files, or of dummy weights, most elements first. Empty: config.json names no quantized
  // weights, or no file is there.
  std::vector<StoredFormat> weight_formats;
  DType kv_cache_dtype = DType::kF32;
  bool has_kv_scales = false;   // K and V are stored by the checkpoint's scales
  bool always_absorbs = false;  // latent attention: the prefill backend does not support contiguous keys
  // Decode steps attend once to keys that several of their requests share, if that saves at least so many
  // reads of a key; 0: never.
  int64_t cascade_min_keys = 0;
  size_t pool_bytes = 0;
  size_t kv_token_bytes = 0;   // K/V of one token, all layers together
  size_t workspace_bytes = 0;  // of the attention backends
  // After the weights are loaded.
  size_t weight_bytes = 0;
  size_t expert_bytes = 0;  // part of weight_bytes: experts, of which a token uses a few
  // After the graphs are recorded.
  std::vector<int> graph_sizes;  // batch sizes that have a CUDA graph
  size_t graph_bytes = 0;
};

}  // namespace attend
#pragma GCC visibility pop
