#include "attend/bench/model_steps.h"

#include <random>

#include "attend/base/error.h"

namespace attend::bench {
namespace {

// Of a weight, wherever it lies.
double weight_element_bytes(const Engine& engine) {
  const bool on_gpu = engine.info().device.type == DeviceType::kCuda;
  return static_cast<double>(size_of(on_gpu ? engine.info().dtype : engine.model_config().dtype));
}

}  // namespace

std::vector<int32_t> random_prompt(int num_tokens, int vocab_size) {
  std::mt19937 random(1);
  std::vector<int32_t> ids(static_cast<size_t>(num_tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<unsigned>(vocab_size));
  return ids;
}

void require_token(const StepOutput& output) {
  if (output.finish_reason == FinishReason::kError)
    fail(ErrorCode::kCorruptFile, "model: its logits are not numbers, so there is nothing to time");
}

double multiplied_bytes(const Engine& engine) {
  const ModelConfig& config = engine.model_config();
  const double table_bytes = weight_element_bytes(engine) * config.vocab_size * config.hidden_size;
  return static_cast<double>(engine.info().weight_bytes) - (config.tie_word_embeddings ? 0.0 : table_bytes);
}

double decode_bytes(const Engine& engine, int batch_size, int context) {
  const ModelConfig& config = engine.model_config();
  const double kv_token_bytes = static_cast<double>(size_of(engine.info().kv_cache_dtype)) * 2.0 *
                                config.num_layers * config.num_kv_heads * config.head_dim;
  return multiplied_bytes(engine) + kv_token_bytes * batch_size * context;
}

double prompt_operations(const Engine& engine, int depth, int num_tokens) {
  const ModelConfig& config = engine.model_config();
  const double lm_head = static_cast<double>(config.vocab_size) * config.hidden_size;
  const double weights = multiplied_bytes(engine) / weight_element_bytes(engine);
  const double pairs = num_tokens * (depth + (num_tokens + 1) / 2.0);
  return 2 * ((weights - lm_head) * num_tokens + lm_head) +
         4 * pairs * config.num_layers * config.num_q_heads * config.head_dim;
}

}  // namespace attend::bench
