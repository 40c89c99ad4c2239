#include "attend/kv/req_to_token_pool.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/kv/change_log.h"
#include "attend/tensor/arena.h"

namespace attend {
namespace {

// Stores a few changes per row between two launches of an executor. An executor that launches less often
// copies whole rows.
constexpr int kSharedWritesPerRow = 4;

}  // namespace

ReqToTokenPool::ReqToTokenPool(int max_reqs, int max_context_len)
    : num_rows_(max_reqs + 1),
      max_context_len_(max_context_len),
      // Arena memory is committed on first touch, so a row uses memory for its longest request only.
      table_(Arena(num_bytes(max_reqs, max_context_len), "ReqToTokenPool")
                 .allocate({num_rows_, max_context_len}, DType::kI32)),
      shared_writes_(std::make_unique<ChangeLog<RowRange>>(kSharedWritesPerRow * num_rows_)) {
  num_written_.assign(static_cast<size_t>(num_rows_), 0);
  free_.reserve(static_cast<size_t>(max_reqs));
  reset();
}

ReqToTokenPool::~ReqToTokenPool() = default;

void ReqToTokenPool::reset() {
  for (int32_t row = 1; row < num_rows_; ++row) clear(RequestRow(row));
  allocated_.assign(static_cast<size_t>(num_rows_), false);
  free_.clear();
  for (int32_t row = num_rows_ - 1; row > 0; --row) free_.emplace_back(row);
}

std::optional<RequestRow> ReqToTokenPool::allocate() {
  if (free_.empty()) return std::nullopt;
  const RequestRow row = free_.back();
  free_.pop_back();
  allocated_[static_cast<size_t>(row.value)] = true;
  return row;
}

void ReqToTokenPool::free(RequestRow row) {
  check_allocated(row);
  clear(row);
  allocated_[static_cast<size_t>(row.value)] = false;
  free_.push_back(row);
}

void ReqToTokenPool::clear(RequestRow row) {
  int& num_written = num_written_[static_cast<size_t>(row.value)];
  std::fill_n(table_.as<TokenSlot>() + int64_t{row.value} * max_context_len_, num_written, TokenSlot{});
  num_written = 0;
}

void ReqToTokenPool::write(RequestRow row, int first, View<const TokenSlot> slots) {
  check_allocated(row);
  ensure(first >= 0 && first <= max_context_len_ &&
             slots.size() <= static_cast<size_t>(max_context_len_ - first),
         "ReqToTokenPool: positions ", first, " to ", first + static_cast<int64_t>(slots.size()) - 1,
         " of request row ", row, ": a row has ", max_context_len_, " positions");
  for (TokenSlot slot : slots)
    ensure(slot.value >= 0, "ReqToTokenPool: slot ", slot, " for request row ", row,
           ": slots are 0 or above");
  std::copy(slots.begin(), slots.end(),
            table_.as<TokenSlot>() + int64_t{row.value} * max_context_len_ + first);
  int& num_written = num_written_[static_cast<size_t>(row.value)];
  num_written = std::max(num_written, first + static_cast<int>(slots.size()));
}

void ReqToTokenPool::write_shared(RequestRow row, int first, View<const TokenSlot> slots) {
  write(row, first, slots);
  if (!slots.empty()) shared_writes_->add({row, first, static_cast<int>(slots.size())});
}

int64_t ReqToTokenPool::shared_cursor() const { return shared_writes_->end(); }

void ReqToTokenPool::apply_shared_writes(int64_t& cursor,
                                         const std::function<void(const RowRange&)>& copy) const {
  if (shared_writes_->apply_since(cursor, copy)) return;
  for (int row = 1; row < num_rows_; ++row)
    if (const int count = num_written_[static_cast<size_t>(row)]; count > 0)
      copy(RowRange{RequestRow(row), 0, count});
}

View<const TokenSlot> ReqToTokenPool::row(RequestRow row) const {
  ensure(row.value >= 0 && row.value < num_rows_, "ReqToTokenPool: request row ", row, ": rows are 0 to ",
         num_rows_ - 1);
  return {table_.as<TokenSlot>() + int64_t{row.value} * max_context_len_,
          static_cast<size_t>(max_context_len_)};
}

size_t ReqToTokenPool::num_bytes(int max_reqs, int max_context_len) {
  require(max_reqs > 0, "max_reqs ", max_reqs, ": ReqToTokenPool needs at least 1");
  require(max_context_len > 0, "max_context_len ", max_context_len, ": ReqToTokenPool needs at least 1");
  return (static_cast<size_t>(max_reqs) + 1) * static_cast<size_t>(max_context_len) * sizeof(TokenSlot);
}

void ReqToTokenPool::check_allocated(RequestRow row) const {
  ensure(row.value > 0 && row.value < num_rows_ && allocated_[static_cast<size_t>(row.value)],
         "ReqToTokenPool: request row ", row, " is not in use");
}

}  // namespace attend
