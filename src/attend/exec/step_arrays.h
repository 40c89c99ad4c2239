// StepArrays: arrays of a step on the device, and the ForwardBatch with views of them.
#pragma once

#include <span>
#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/attention/forward_batch.h"
#include "attend/exec/executor_batch.h"
#include "attend/exec/graph_runner.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/kv/storage/step_column.h"
#include "attend/model/model.h"
#include "attend/tensor/staging_ring.h"

namespace attend {

// Allocates for the limits in its constructor; build() only fills and uploads, with one copy.
class StepArrays {
 public:
  // `request_table`: DeviceRows::table() over `rows`. `columns`: CacheStorage::columns(); build() fills them
  // and sets their entries. `has_prefix_info`: batches have ForwardBatch::prefix. `has_axes`: every step has
  // ModelInput::rope_positions, as graphs of models with images require; otherwise those of images' positions
  // have. Arguments passed by reference must outlive this object.
  StepArrays(const BatchLimits& limits, const ReqToTokenPool& rows, const TensorView& request_table,
             std::span<StepColumn* const> columns = {}, bool has_prefix_info = true, bool has_axes = false);

  // Describes `step`, padded to `size` if that has requests: decode steps, and steps with drafts. Pad
  // requests have request row 0, length 1, one token that is not stored, and logits that are ignored. Further
  // pad tokens follow the last request, and a padded step has as many rows of logits as tokens. If
  // limits.max_tree_tokens is set, padded steps with drafts have a tree mask, also for chains. Only a decode
  // step without padding has shared keys.
  void build(const ExecutorBatch& step, Stream& stream, const StepSize& size = {});

  const ForwardBatch& batch() const { return batch_; }
  // [num_tokens] on the device: index of each token in its request's row. Under a tree mask it differs from
  // the token's position.
  View<const int32_t> row_positions() const { return row_positions_; }
  // Overrides batch().max_seqlen_kv for steps that consist of padding and represent other lengths (graphs).
  void set_max_seqlen_kv(int max_seqlen_kv) { batch_.max_seqlen_kv = max_seqlen_kv; }
  // [num_tokens] on the device: the token ids of model_input().
  View<int32_t> token_ids() const { return token_ids_; }
  const ModelInput& model_input() const { return model_input_; }
  // Sampling rule of each row of logits, including padding, on the device.
  View<const kernels::SamplingRule> rules() const { return rules_; }

 private:
  // Addresses of a step's arrays in a block of bytes at `base`. They are adjacent, to keep the upload small.
  // Padded steps of one size have the same addresses, as graphs require. The columns follow the arrays.
  struct Arrays {
    // `mask_words`: words of the tree mask per token; 0: no tree mask.
    Arrays(std::byte* base, int num_reqs, int num_tokens, int num_logit_rows, int num_token_types,
           int num_rope_positions, int num_item_entries, int mask_words);

    kernels::SamplingRule* rules;
    uint64_t* tree_mask;
    RequestRow* request_rows;
    int32_t *seqlen_kv, *cu_seqlen_q, *prompt_lens, *logit_rows, *positions, *token_ids;
    int32_t* row_positions;  // only with a tree mask
    TokenSlot* out_slots;
    int32_t *shared_seqlen_kv, *shared_cu_seqlen_q, *suffix_seqlen_kv, *suffix_offsets;
    int32_t* token_types;     // only of steps with token types, which are not padded
    int32_t* rope_positions;  // [3, num_tokens]: only of steps with them
    int32_t* item_entries;    // cu_seqlen_q and seqlen_kv of each item
    int32_t* columns;
    size_t num_bytes;
  };
  // Number of tokens and rows of logits added to the step so far.
  struct Counts {
    int num_tokens = 0, num_logit_rows = 0;
  };

  void add_request(const Arrays& arrays, int request_idx, const ExecutorRequest& request, Counts& counts);
  // Overwrites the positions of the request's tokens, which start at `first_token`, by those of their tree.
  void add_tree(const Arrays& arrays, const ExecutorBatch& step, const ExecutorRequest& request,
                int first_token) const;
  void add_padding(const Arrays& arrays, int request_idx, Counts& counts);
  // Adds a token that is not stored, with a row of logits.
  void add_pad_token(const Arrays& arrays, Counts& counts);
  // Adds a row of logits of a token, which is ignored.
  void add_logit_row(const Arrays& arrays, int token, Counts& counts);
  // Writes step.rope_positions, and the positions of other tokens on each axis.
  static void copy_axes(const ExecutorBatch& step, const Arrays& arrays, int num_tokens);
  void add_shared(const Arrays& arrays, const ExecutorBatch& step);
  void set_num_drafts(const ExecutorBatch& step, int padded_reqs);
  void view_arrays(const ExecutorBatch& step, const Arrays& on_device, int num_reqs, int max_seqlen_q,
                   const Counts& counts);

  // Fills the columns on the host from the step's other arrays. Returns the bytes of all arrays.
  size_t add_columns(const Arrays& arrays, int num_reqs, int num_tokens) const;

  const ReqToTokenPool& rows_;
  const TensorView request_table_;
  const std::span<StepColumn* const> columns_;
  bool has_prefix_info_, has_axes_;
  std::vector<BidirectionalItem> items_;  // of the step
  std::vector<int32_t> num_drafts_;       // HostStep::num_drafts
  StagingRing ring_;
  ForwardBatch batch_;
  ModelInput model_input_;
  int max_tree_tokens_;
  int mask_words_ = 0;  // of the step
  View<int32_t> token_ids_;
  View<const int32_t> row_positions_;
  View<const kernels::SamplingRule> rules_;
};

}  // namespace attend
