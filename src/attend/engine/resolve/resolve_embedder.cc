#include "attend/engine/resolve/resolve_embedder.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/engine/output/embedding_files.h"

namespace attend {
namespace {

constexpr int kMaxInputTokens = 8192;

}  // namespace

ResolvedEmbedder resolve_embedder(const EmbedderConfig& config) {
  ResolvedEmbedder resolved;
  EmbedderInfo& info = resolved.info;
  const ModelSpec spec = read_config(config.model_path);
  const EmbeddingFiles files =
      read_embedding_files(config.model_path)
          .value_or(EmbeddingFiles{.pooling = {}, .dense = {}, .normalize = true, .max_tokens = {}});

  info.model = spec.architecture;
  info.bidirectional = spec.bidirectional();
  const Pooling usual = info.bidirectional ? Pooling::kMean : Pooling::kLast;
  info.pooling = config.pooling.value_or(files.pooling.value_or(usual));
  info.normalize = config.normalize.value_or(files.normalize);
  const int longest = std::min(spec.max_context_len(), kMaxInputTokens);
  require(config.max_input_tokens >= 0 && config.max_input_tokens <= longest, "max_input_tokens ",
          config.max_input_tokens, ": 1 to ", longest, ", or 0 for the model's own limit");
  const int by_files = std::min(files.max_tokens.value_or(longest), longest);
  info.max_input_tokens = config.max_input_tokens > 0 ? config.max_input_tokens : by_files;
  info.dimensions = spec.hidden_size;
  for (const EmbeddingDense& layer : files.dense) {
    if (layer.in_features != info.dimensions)
      fail(ErrorCode::kCorruptFile, (layer.directory / "config.json").string(), ": in_features ",
           layer.in_features, ": expected ", info.dimensions, ", the size of the layer before it");
    info.dimensions = layer.out_features;
  }

  EngineConfig& engine = resolved.engine;
  const DType on_device = config.device.type == DeviceType::kCuda ? spec.dtype : DType::kF32;
  engine.model_path = config.model_path;
  engine.model = spec;
  engine.load_format = config.load_format;
  engine.device = config.device;
  engine.backend_options = config.backend_options;
  engine.dtype = engine.kv_cache_dtype = config.dtype.value_or(on_device);
  engine.context_length = info.max_input_tokens;
  engine.pooling = {.pooling = info.pooling, .dense = files.dense, .normalize = info.normalize};
  return resolved;
}

void add_engine_info(const EngineInfo& engine, EmbedderInfo& info) {
  info.hardware = engine.target().hardware;
  info.dtype = engine.target().dtype;
  info.resolution = engine.target().resolution;
  info.max_step_tokens = engine.limits.max_tokens;
  info.max_step_inputs = engine.limits.max_reqs;
  info.weight_bytes = engine.weight_bytes();
}

}  // namespace attend
