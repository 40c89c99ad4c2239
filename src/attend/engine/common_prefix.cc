#include "attend/engine/common_prefix.h"

#include <algorithm>

namespace attend {

int CommonPrefix::num_keys(const ScheduledStep& step) {
  if (min_saved_keys_ == 0 || step.mode != ForwardMode::kDecode || step.requests.size() < 2) {
    requests_.clear();
    return 0;
  }
  const auto id = [](const ScheduledRequest& part) { return part.request->id; };
  if (!std::ranges::equal(step.requests, requests_, {}, id)) {
    num_keys_ = compare_rows(step);
    requests_.clear();
    for (const ScheduledRequest& part : step.requests) requests_.push_back(id(part));
  }
  const auto others = static_cast<int64_t>(step.requests.size()) - 1;
  return others * num_keys_ >= min_saved_keys_ ? num_keys_ : 0;
}

int CommonPrefix::compare_rows(const ScheduledStep& step) const {
  const Request& first = *step.requests.front().request;
  const View<const TokenSlot> slots = rows_.row(first.row);
  int num_pages = first.num_computed / page_size_;
  for (const ScheduledRequest& part : step.requests) {
    const View<const TokenSlot> other = rows_.row(part.request->row);
    num_pages = std::min(num_pages, part.request->num_computed / page_size_);
    // A page is shared as a whole: its first slot tells.
    const auto same = [&](int page) {
      const auto position = static_cast<size_t>(page) * static_cast<size_t>(page_size_);
      return slots[position] == other[position];
    };
    int page = 0;
    while (page < num_pages && same(page)) ++page;
    num_pages = page;
  }
  return num_pages * page_size_;
}

}  // namespace attend
