// StepArrays: a step's arrays on the device, and the ForwardBatch that views them.
#pragma once

#include <span>

#include "attend/attention/attention_layer.h"
#include "attend/attention/forward_batch.h"
#include "attend/exec/executor_batch.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/kv/storage/step_column.h"
#include "attend/model/model.h"
#include "attend/tensor/staging_ring.h"

namespace attend {

// Allocates for the limits in its constructor; build() only fills and uploads, with one copy.
class StepArrays {
 public:
  // `request_table`: DeviceRows::table() over `rows`. `columns`: CacheStorage::columns(); build() fills them
  // and sets their entries. `has_prefix_info`: batches have ForwardBatch::prefix. What is passed by reference
  // outlives this.
  StepArrays(const BatchLimits& limits, const ReqToTokenPool& rows, const TensorView& request_table,
             std::span<StepColumn* const> columns = {}, bool has_prefix_info = true);

  // Describes `step`. A decode step may be padded to `padded_reqs` requests (0: as many as it has): pad
  // requests have request row 0, length 1 and one token that is not stored; they have logits too, and nobody
  // reads them. Only a decode step without padding shares keys.
  void build(const ExecutorBatch& step, Stream& stream, int padded_reqs = 0);

  const ForwardBatch& batch() const { return batch_; }
  // What batch() says of lengths, for a step that stands for others: of padding alone.
  void set_max_seqlen_kv(int max_seqlen_kv) { batch_.max_seqlen_kv = max_seqlen_kv; }
  // [num_tokens] on the device, as model_input() has them.
  View<int32_t> token_ids() const { return token_ids_; }
  const ModelInput& model_input() const { return model_input_; }
  // On the device: how each row of the logits is sampled, padding included.
  View<const kernels::SamplingRule> rules() const { return rules_; }

 private:
  // Where the arrays of a step lie in a block of bytes that begins at `base`: one after another, so that they
  // are few bytes to upload. Padded steps of one size have the same addresses, as a graph wants. The columns
  // follow them.
  struct Arrays {
    Arrays(std::byte* base, int num_reqs, int num_tokens, int num_logit_rows);

    kernels::SamplingRule* rules;
    RequestRow* request_rows;
    int32_t *seqlen_kv, *cu_seqlen_q, *prompt_lens, *logit_rows, *positions, *token_ids;
    TokenSlot* out_slots;
    int32_t *shared_seqlen_kv, *shared_cu_seqlen_q, *suffix_seqlen_kv, *suffix_offsets, *columns;
    size_t num_bytes;
  };
  // What the step has so far.
  struct Counts {
    int num_tokens = 0, num_logit_rows = 0;
  };

  void add_request(const Arrays& arrays, int request_idx, const ExecutorRequest& request, Counts& counts);
  void add_padding(const Arrays& arrays, int request_idx, Counts& counts);
  void add_shared(const Arrays& arrays, const ExecutorBatch& step);
  void view_arrays(const ExecutorBatch& step, const Arrays& on_device, int num_reqs, int max_seqlen_q,
                   const Counts& counts);

  // Fills the columns, on the host, from the step's other arrays. Returns the bytes of all arrays.
  size_t add_columns(const Arrays& arrays, int num_reqs, int num_tokens) const;

  const ReqToTokenPool& rows_;
  const TensorView request_table_;
  const std::span<StepColumn* const> columns_;
  bool has_prefix_info_;
  StagingRing ring_;
  ForwardBatch batch_;
  ModelInput model_input_;
  View<int32_t> token_ids_;
  View<const kernels::SamplingRule> rules_;
};

}  // namespace attend
