// ExecutorConfig: one model on one rank, with every size resolved.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/attention/resolver.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/exec/graph_runner.h"
#include "attend/kv/storage/cache_storage_config.h"
#include "attend/model/model.h"

namespace attend {

struct ExecutorConfig {
  std::shared_ptr<const Checkpoint> checkpoint;  // null: dummy weights
  ModelSpec model;
  ModelPlacement placement;
  Resolution resolution;
  BackendConfig backend;  // geometry, limits of a step, page size
  CacheStorageConfig storage;
  // false: batches have no ForwardBatch::prefix, so latent attention is absorbed in every step.
  bool has_prefix_info = true;
  bool logits = true;  // batches may have rows of logits
  // Batches may request hidden states: the residual stream before these layers, as in HiddenOutput, or the
  // stream after the final norm. GPUs: graphs write them in each step.
  bool hidden_states = false;
  std::vector<int> hidden_layers = {};
  bool encodes_images = false;  // batches may have images; loads the model's encoder
  // Bytes of encoded images that are kept for later steps and requests.
  size_t image_cache_bytes = 0;
  // GPUs: batch sizes that decode steps are padded to, in ascending order, at most limits.max_reqs. Empty:
  // decode steps are not padded.
  std::vector<int> decode_sizes;
  // The same for steps with drafts: verify_graph_sizes(). Empty for models with recurrent states, the inputs
  // of which are kept per verified token.
  std::vector<StepSize> verify_sizes;
  bool adapters = false;  // GPUs: steps may have adapters; records graphs with them, too

  // Features of a row of hidden states.
  int64_t hidden_width() const { return std::max<int64_t>(1, std::ssize(hidden_layers)) * model.hidden_size; }
  // Features of the widest row of hidden states that a draft reads; 0: the model is not a draft.
  int64_t hidden_input_width() const {
    return model.draft ? std::max(model.draft->target_width(), model.hidden_size) : 0;
  }
};

}  // namespace attend
