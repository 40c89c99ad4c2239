// The weights of a decoder: which tensors a config asks for, and what they are called.
#pragma once

#include <string>
#include <vector>

#include "attend/model/architecture.h"
#include "attend/model/config.h"
#include "attend/tensor/tensor.h"

namespace attend {

// y = x W^T + b.
struct Projection {
  Tensor weight;  // [out_features, in_features]
  Tensor bias;    // [out_features]; empty: none
};

struct DecoderLayerWeights {
  Tensor attention_norm;  // [hidden_size]
  Projection q, k, v, o;
  Tensor q_norm, k_norm;  // [head_dim]; empty: none
  Tensor mlp_norm;        // [hidden_size]
  Projection gate, up, down;
  // On GPUs the weights of q, k and v, and of gate and up, lie in one: then those above are empty.
  Projection qkv, gate_up;
};

struct DecoderWeights {
  Tensor embedding;  // [vocab_size, hidden_size]
  std::vector<DecoderLayerWeights> layers;
  Tensor final_norm;  // [hidden_size]
  Tensor lm_head;     // [vocab_size, hidden_size]; empty: the embedding
};

// A tensor that a model needs, and where it goes.
struct WeightSlot {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;
  Tensor* tensor;
  bool is_norm = false;
};

// Every tensor that `config` asks for, in the order of their use; lm_head only when `with_lm_head`. The slots
// point into `weights`, whose layers are set up here.
std::vector<WeightSlot> weight_slots(const ModelConfig& config, const DecoderNames& names, bool with_lm_head,
                                     DecoderWeights& weights);

}  // namespace attend
