// Runs sequences through a model step by step, as an engine would, with only rows, slots, a KV pool and a
// backend, on either device.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/kv/allocator.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/kv/state/state_slots.h"
#include "attend/kv/storage/cache_storage.h"
#include "attend/kv/window/swa_slots.h"
#include "attend/model/model.h"
#include "attend/tensor/cuda.h"

namespace attend::test {

struct Sequence {
  std::vector<int32_t> tokens;  // prompt and generated tokens
  int num_prompt = 0;
  int num_computed = 0;
  RequestRow row;
  int first_held_page = 0;  // in the half for layers with a window
};

// Number of tokens that a step computes for one sequence.
struct Extension {
  Sequence* sequence;
  int num_new;
};

class GoldenDriver {
 public:
  // Supports at most `max_reqs` sequences of `max_len` tokens and `max_tokens` new tokens per step. Without
  // `kv_dtype`, K/V have the dtype of the activations.
  GoldenDriver(Model& model, const ModelPlacement& placement, const BackendEntry& backend, int page_size,
               int max_reqs, int max_len, int max_tokens, std::optional<DType> kv_dtype = {});

  Sequence begin(std::span<const int32_t> prompt);
  void end(const Sequence& sequence);
  // Returns the logits of each new token, sequence after sequence: f32 [num_tokens, vocab_size] on the host.
  Tensor step(std::span<const Extension> extensions);
  // Like step(), but with the logits of only the last token of each sequence; appends the most likely token
  // to each.
  void decode(std::span<const Extension> extensions);

 private:
  Tensor run(std::span<const Extension> extensions, std::span<const int32_t> logit_rows);
  Tensor compute(const ForwardBatch& batch, const ModelInput& input);
  std::vector<PageId> pages_of(const Sequence& sequence, int first, int end) const;
  void release_before_window(Sequence& sequence);

  Model& model_;
  ReqToTokenPool rows_;
  std::unique_ptr<SlotAllocator> slots_;
  std::unique_ptr<SwaSlots> window_slots_;  // null: the model has no layers with a window among others
  std::optional<StateSlots> state_slots_;   // models with recurrent states
  std::optional<CacheStorage> storage_;
  int widest_window_left_ = 0;  // largest window_left of all layers
  std::unique_ptr<AttentionBackend> attention_;
  std::optional<cuda::OwnedStream> gpu_stream_;
  Stream stream_;
};

}  // namespace attend::test
