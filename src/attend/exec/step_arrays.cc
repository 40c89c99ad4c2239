#include "attend/exec/step_arrays.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/math.h"

namespace attend {

StepArrays::Arrays::Arrays(std::byte* base, int num_reqs, int num_tokens, int num_logit_rows,
                           int num_token_types, int num_rope_positions, int num_item_entries,
                           int mask_words) {
  size_t offset = 0;
  const auto place = [&]<class T>(T*& array, int count) {
    array =
        base == nullptr ? nullptr : reinterpret_cast<T*>(base + offset);  // null: only num_bytes is computed
    offset += static_cast<size_t>(count) * sizeof(T);
  };
  // The widest elements come first, so that all are aligned.
  place(rules, num_logit_rows);
  place(tree_mask, num_tokens * mask_words);
  place(request_rows, num_reqs);
  place(seqlen_kv, num_reqs);
  place(cu_seqlen_q, num_reqs + 1);
  place(prompt_lens, num_reqs);
  place(logit_rows, num_logit_rows);
  place(positions, num_tokens);
  place(token_ids, num_tokens);
  place(row_positions, mask_words > 0 ? num_tokens : 0);
  place(out_slots, num_tokens);
  place(shared_seqlen_kv, 1);
  place(shared_cu_seqlen_q, 2);
  place(suffix_seqlen_kv, num_reqs);
  place(suffix_offsets, num_reqs);
  place(token_types, num_token_types);
  place(rope_positions, num_rope_positions);
  place(item_entries, num_item_entries);
  place(columns, 0);
  num_bytes = offset;
}

namespace {

size_t num_entries(const StepColumn& column, int num_reqs, int num_tokens) {
  return static_cast<size_t>(column.length() == StepColumn::Length::kRequests ? num_reqs : num_tokens);
}

size_t column_bytes(std::span<StepColumn* const> columns, int num_reqs, int num_tokens) {
  size_t bytes = 0;
  for (const StepColumn* column : columns)
    bytes += num_entries(*column, num_reqs, num_tokens) * sizeof(int32_t);
  return bytes;
}

// cu_seqlen_q and seqlen_kv of an item.
constexpr int kItemEntries = 3;

}  // namespace

StepArrays::StepArrays(const BatchLimits& limits, const ReqToTokenPool& rows, const TensorView& request_table,
                       std::span<StepColumn* const> columns, bool has_prefix_info, bool has_axes)
    : rows_(rows),
      request_table_(request_table),
      columns_(columns),
      has_prefix_info_(has_prefix_info),
      has_axes_(has_axes),
      ring_(Arrays(nullptr, limits.max_reqs, limits.max_tokens, limits.max_logit_rows(), limits.max_tokens,
                   3 * limits.max_tokens, kItemEntries * limits.max_tokens,
                   ceil_div(limits.max_tree_tokens, 64))
                    .num_bytes +
                column_bytes(columns, limits.max_reqs, limits.max_tokens),
            request_table.device),
      max_tree_tokens_(limits.max_tree_tokens) {
  num_drafts_.reserve(static_cast<size_t>(limits.max_reqs));
}

void StepArrays::build(const ExecutorBatch& step, Stream& stream, const StepSize& size) {
  const auto num_reqs = static_cast<int>(step.requests.size());
  const bool padded = size.num_reqs > 0;
  ensure(!padded || step.mode == (size.verifies() ? ForwardMode::kTargetVerify : ForwardMode::kDecode),
         "padding of a step that neither decodes nor verifies drafts");
  const int all_reqs = padded ? size.num_reqs : num_reqs,
            all_tokens = padded ? size.num_tokens : step.num_tokens();
  const int num_pad_tokens = all_tokens - step.num_tokens();
  ensure(num_pad_tokens >= all_reqs - num_reqs && all_reqs >= num_reqs, "a step of ", num_reqs,
         " requests and ", step.num_tokens(), " tokens, padded to ", all_reqs, " and ", all_tokens);
  // Every token of a padded step has a row of logits.
  const int all_logit_rows = padded ? all_tokens : static_cast<int>(step.rules.size());
  const auto num_types = static_cast<int>(step.token_types.size());
  ensure(num_types == 0 || num_types == all_tokens, "a step of ", all_tokens, " tokens with ", num_types,
         " token types");
  ensure(step.rope_positions.empty() || std::ssize(step.rope_positions) == 3 * step.num_tokens(),
         "a step of ", step.num_tokens(), " tokens with ", step.rope_positions.size(),
         " positions on three axes");
  const int num_positions = has_axes_ || !step.rope_positions.empty() ? 3 * all_tokens : 0;
  items_ = step.items;
  const int num_item_entries = kItemEntries * static_cast<int>(items_.size());
  // The same for all steps of a padded size, also if a graph is captured with padding only.
  int max_seqlen_q = padded ? size.max_seqlen_q : 0, max_seqlen_kv = padded ? 1 : 0;
  for (const ExecutorRequest& request : step.requests) max_seqlen_q = std::max(max_seqlen_q, request.num_new);
  const bool has_mask = !step.tree_parents.empty() || (size.verifies() && max_tree_tokens_ > 0);
  ensure(!has_mask || max_seqlen_q <= max_tree_tokens_, "a tree of ", max_seqlen_q, " new tokens: at most ",
         max_tree_tokens_);
  ensure(step.tree_parents.empty() || std::ssize(step.tree_parents) == step.num_tokens(), "trees of ",
         step.tree_parents.size(), " tokens in a step of ", step.num_tokens());
  mask_words_ = has_mask ? ceil_div(max_seqlen_q, 64) : 0;
  const auto arrays_at = [&](std::byte* base) {
    return Arrays(base, all_reqs, all_tokens, all_logit_rows, num_types, num_positions, num_item_entries,
                  mask_words_);
  };
  const Arrays arrays = arrays_at(ring_.next_slot().data());
  arrays.cu_seqlen_q[0] = 0;
  PrefixInfo prefix{.table = request_table_.as<const int32_t>(), .table_stride = request_table_.strides[0]};
  Counts counts;
  std::ranges::copy(step.token_ids, arrays.token_ids);
  std::ranges::copy(step.token_types, arrays.token_types);
  for (size_t i = 0; i < items_.size(); ++i) {
    int32_t* const entries = arrays.item_entries + kItemEntries * i;
    entries[0] = 0;
    entries[1] = items_[i].num_tokens;
    entries[2] = items_[i].end;
  }
  std::ranges::copy(step.rules, arrays.rules);
  for (int i = 0; i < num_reqs; ++i) {
    const ExecutorRequest& request = step.requests[static_cast<size_t>(i)];
    const int end = request.num_computed + request.num_new;
    const int first_token = counts.num_tokens;
    add_request(arrays, i, request, counts);
    if (has_mask) add_tree(arrays, step, request, first_token);
    max_seqlen_kv = std::max(max_seqlen_kv, end);
    prefix.add(end, request.num_new);
  }
  for (int i = num_reqs; i < all_reqs; ++i) add_padding(arrays, i, counts);
  while (counts.num_tokens < all_tokens) add_pad_token(arrays, counts);
  if (num_positions > 0) copy_axes(step, arrays, all_tokens);
  const int num_rows_without_tokens = all_logit_rows - counts.num_logit_rows;
  while (padded && counts.num_logit_rows < all_logit_rows) add_logit_row(arrays, 0, counts);
  ensure(counts.num_tokens == all_tokens && counts.num_logit_rows == all_logit_rows, "a step of ",
         step.token_ids.size(), " tokens and ", step.rules.size(), " rows of logits whose requests have ",
         counts.num_tokens - num_pad_tokens, " and ",
         counts.num_logit_rows - num_pad_tokens - num_rows_without_tokens);
  if (step.shared.num_keys > 0) add_shared(arrays, step);
  set_num_drafts(step, all_reqs);
  ring_.upload(add_columns(arrays, all_reqs, all_tokens), stream);
  view_arrays(step, arrays_at(static_cast<std::byte*>(ring_.device_bytes().data)), all_reqs, max_seqlen_q,
              counts);
  // A graph of this size serves steps in which only some tokens of a request have logits, too: those that a
  // draft model computes, or that a tree of drafts follows.
  model_input_.any_logit_rows = size.verifies();
  batch_.max_seqlen_kv = max_seqlen_kv;
  batch_.prefix = has_prefix_info_ ? std::optional(prefix) : std::nullopt;
  batch_.shared.num_keys = step.shared.num_keys;
  batch_.shared.num_reqs = step.shared.num_reqs;
}

void StepArrays::copy_axes(const ExecutorBatch& step, const Arrays& arrays, int num_tokens) {
  const size_t num_given = step.rope_positions.size() / 3;
  for (size_t axis = 0; axis < 3; ++axis) {
    int32_t* const to = arrays.rope_positions + axis * static_cast<size_t>(num_tokens);
    std::copy_n(arrays.positions, num_tokens, to);
    std::copy_n(step.rope_positions.begin() + static_cast<std::ptrdiff_t>(axis * num_given), num_given, to);
  }
}

size_t StepArrays::add_columns(const Arrays& arrays, int num_reqs, int num_tokens) const {
  const auto reqs = static_cast<size_t>(num_reqs), tokens = static_cast<size_t>(num_tokens);
  const HostStep step{.request_rows = {arrays.request_rows, reqs},
                      .seqlen_kv = {arrays.seqlen_kv, reqs},
                      .cu_seqlen_q = {arrays.cu_seqlen_q, reqs + 1},
                      .out_slots = {arrays.out_slots, tokens},
                      .num_drafts = num_drafts_};
  int32_t* entries = arrays.columns;
  for (const StepColumn* column : columns_) {
    const size_t count = num_entries(*column, num_reqs, num_tokens);
    column->fill(step, {entries, count});
    entries += count;
  }
  return arrays.num_bytes + column_bytes(columns_, num_reqs, num_tokens);
}

void StepArrays::add_shared(const Arrays& arrays, const ExecutorBatch& step) {
  const SharedPrefix& shared = step.shared;
  const int num_tokens = step.num_tokens();
  ensure(num_tokens == std::ssize(step.requests), "shared keys of a step other than decode");
  *arrays.shared_seqlen_kv = shared.num_keys;
  arrays.shared_cu_seqlen_q[0] = 0;
  arrays.shared_cu_seqlen_q[1] = shared.num_reqs;
  for (int i = 0; i < num_tokens; ++i) {
    const int skipped = i < shared.num_reqs ? shared.num_keys : 0;
    arrays.suffix_seqlen_kv[i] = arrays.seqlen_kv[i] - skipped;
    arrays.suffix_offsets[i] = static_cast<int32_t>(
        step.requests[static_cast<size_t>(i)].row.value * request_table_.strides[0] + skipped);
  }
}

void StepArrays::set_num_drafts(const ExecutorBatch& step, int padded_reqs) {
  num_drafts_.clear();
  if (std::ranges::all_of(step.requests, [](const auto& request) { return request.num_drafts == 0; })) return;
  for (const ExecutorRequest& request : step.requests) num_drafts_.push_back(request.num_drafts);
  num_drafts_.resize(static_cast<size_t>(padded_reqs), 0);
}

void StepArrays::add_request(const Arrays& arrays, int request_idx, const ExecutorRequest& request,
                             Counts& counts) {
  const View<const TokenSlot> slots = rows_.row(request.row);
  const int end = request.num_computed + request.num_new;
  for (int position = request.num_computed; position < end; ++position, ++counts.num_tokens) {
    arrays.positions[counts.num_tokens] = position;
    arrays.out_slots[counts.num_tokens] = slots[static_cast<size_t>(position)];
  }
  arrays.request_rows[request_idx] = request.row;
  arrays.seqlen_kv[request_idx] = end;
  arrays.prompt_lens[request_idx] = request.prompt_len;
  arrays.cu_seqlen_q[request_idx + 1] = counts.num_tokens;
  for (int i = request.num_logit_rows; i > 0; --i)
    arrays.logit_rows[counts.num_logit_rows++] = counts.num_tokens - i;
}

void StepArrays::add_padding(const Arrays& arrays, int request_idx, Counts& counts) {
  add_pad_token(arrays, counts);
  arrays.request_rows[request_idx] = kPaddingRow;
  arrays.seqlen_kv[request_idx] = 1;
  arrays.prompt_lens[request_idx] = 1;
  arrays.cu_seqlen_q[request_idx + 1] = counts.num_tokens;
}

void StepArrays::add_pad_token(const Arrays& arrays, Counts& counts) {
  arrays.token_ids[counts.num_tokens] = 0;
  arrays.positions[counts.num_tokens] = 0;
  arrays.out_slots[counts.num_tokens] = kNoSlot;
  if (mask_words_ > 0) {
    // A pad request sees its only token; others are of no request.
    uint64_t* const row = arrays.tree_mask + int64_t{counts.num_tokens} * mask_words_;
    std::fill_n(row, mask_words_, uint64_t{0});
    *row = 1;
    arrays.row_positions[counts.num_tokens] = 0;
  }
  add_logit_row(arrays, counts.num_tokens++, counts);
}

void StepArrays::add_logit_row(const Arrays& arrays, int token, Counts& counts) {
  arrays.rules[counts.num_logit_rows] = {.temperature = 0.0f};
  arrays.logit_rows[counts.num_logit_rows++] = token;
}

void StepArrays::add_tree(const Arrays& arrays, const ExecutorBatch& step, const ExecutorRequest& request,
                          int first_token) const {
  for (int i = 0; i < request.num_new; ++i) {
    const int token = first_token + i;
    const int parent = step.tree_parents.empty() ? i - 1 : step.tree_parents[static_cast<size_t>(token)];
    ensure(parent >= -1 && parent < i, "new token ", i, " of a tree has the parent ", parent);
    uint64_t* const row = arrays.tree_mask + int64_t{token} * mask_words_;
    if (parent < 0)
      std::fill_n(row, mask_words_, uint64_t{0});
    else
      std::copy_n(arrays.tree_mask + int64_t{first_token + parent} * mask_words_, mask_words_, row);
    row[i / 64] |= uint64_t{1} << (i % 64);
    arrays.row_positions[token] = request.num_computed + i;
    arrays.positions[token] = parent < 0 ? request.num_computed : arrays.positions[first_token + parent] + 1;
  }
}

void StepArrays::view_arrays(const ExecutorBatch& step, const Arrays& on_device, int num_reqs,
                             int max_seqlen_q, const Counts& counts) {
  const auto reqs = static_cast<size_t>(num_reqs), tokens = static_cast<size_t>(counts.num_tokens),
             logit_rows = static_cast<size_t>(counts.num_logit_rows);
  for (size_t i = 0; i < items_.size(); ++i) {
    const int32_t* const entries = on_device.item_entries + kItemEntries * i;
    items_[i].cu_seqlen_q = {entries, 2};
    items_[i].seqlen_kv = {entries + 2, 1};
  }
  batch_ = {.mode = step.mode,
            .num_reqs = num_reqs,
            .num_tokens = counts.num_tokens,
            .max_seqlen_q = max_seqlen_q,
            .request_rows = {on_device.request_rows, reqs},
            .seqlen_kv = {on_device.seqlen_kv, reqs},
            .cu_seqlen_q = {on_device.cu_seqlen_q, reqs + 1},
            .positions = {on_device.positions, tokens},
            .out_slots = {on_device.out_slots, tokens},
            .tree_mask = {on_device.tree_mask, tokens * static_cast<size_t>(mask_words_)},
            .items = items_,
            .prefix_ready = step.prefix_ready,
            .shared = {.seqlen_kv = {on_device.shared_seqlen_kv, 1},
                       .cu_seqlen_q = {on_device.shared_cu_seqlen_q, 2},
                       .suffix_seqlen_kv = {on_device.suffix_seqlen_kv, reqs},
                       .suffix_offsets = {on_device.suffix_offsets, reqs}}};
  token_ids_ = {on_device.token_ids, tokens};
  row_positions_ = {mask_words_ > 0 ? on_device.row_positions : on_device.positions, tokens};
  model_input_ = {.token_ids = {on_device.token_ids, tokens},
                  .logit_rows = {on_device.logit_rows, logit_rows},
                  .prompt_lens = {on_device.prompt_lens, reqs},
                  .token_types = {on_device.token_types, step.token_types.size()},
                  .rope_positions = {on_device.rope_positions,
                                     has_axes_ || !step.rope_positions.empty() ? 3 * tokens : 0}};
  rules_ = {on_device.rules, logit_rows};
  const int32_t* entries = on_device.columns;
  for (StepColumn* column : columns_) {
    const size_t count = num_entries(*column, num_reqs, counts.num_tokens);
    column->set_entries({entries, count});
    entries += count;
  }
}

}  // namespace attend
