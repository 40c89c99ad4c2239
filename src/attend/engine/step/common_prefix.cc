#include "attend/engine/step/common_prefix.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace attend {

SharedPrefix CommonPrefix::arrange(ScheduledStep& step) {
  if (min_saved_keys_ == 0 || step.mode != ForwardMode::kDecode || step.requests.size() < 2) {
    requests_.clear();
    return {};
  }
  const auto id = [](const ScheduledRequest& part) { return part.request->id; };
  if (!std::ranges::equal(step.requests, requests_, {}, id)) {
    requests_.clear();
    for (const ScheduledRequest& part : step.requests) requests_.push_back(id(part));
    choice_ = choose(step.requests);
  }
  if (choice_.num_pages == 0 || choice_.saved_pages() * page_size_ < min_saved_keys_) return {};
  const auto num_members = static_cast<int>(choice_.members.size());
  if (num_members < std::ssize(step.requests)) {
    std::vector<bool> sharing(step.requests.size());
    for (const int member : choice_.members) sharing[static_cast<size_t>(member)] = true;
    std::vector<ScheduledRequest> others;
    size_t to = 0;
    for (size_t i = 0; i < sharing.size(); ++i)
      if (sharing[i])
        step.requests[to++] = step.requests[i];
      else
        others.push_back(step.requests[i]);
    std::ranges::copy(others, step.requests.begin() + num_members);
  }
  return {.num_keys = choice_.num_pages * page_size_, .num_reqs = num_members};
}

// Walks the pages and continues with the largest group of requests that share the current page.
CommonPrefix::Choice CommonPrefix::choose(std::span<const ScheduledRequest> requests) const {
  // Number of whole pages before the new token.
  const auto num_computed_pages = [&](const ScheduledRequest& part) {
    return part.request->num_computed / page_size_;
  };
  const int max_pages = num_computed_pages(*std::ranges::max_element(requests, {}, num_computed_pages));
  if ((std::ssize(requests) - 1) * max_pages * page_size_ < min_saved_keys_) return {};

  // First slot of a page, which identifies it; kNoSlot: the request has fewer pages.
  const auto first_slot = [&](int member, int page) {
    const ScheduledRequest& part = requests[static_cast<size_t>(member)];
    const auto position = static_cast<size_t>(page) * static_cast<size_t>(page_size_);
    return page < num_computed_pages(part) ? rows_.row(part.request->row)[position] : kNoSlot;
  };
  Choice best;
  std::vector<int> members(requests.size());
  std::iota(members.begin(), members.end(), 0);
  for (int page = 0;; ++page) {
    const TokenSlot first = first_slot(members.front(), page);
    if (first != kNoSlot &&
        std::ranges::all_of(members, [&](int member) { return first_slot(member, page) == first; }))
      continue;
    // The members differ from this page on. Each page before it increased the savings.
    if (Choice choice{page, members}; choice.saved_pages() > best.saved_pages()) best = std::move(choice);
    std::map<TokenSlot, std::vector<int>> by_slot;
    for (const int member : members)
      if (const TokenSlot slot = first_slot(member, page); slot != kNoSlot) by_slot[slot].push_back(member);
    const auto most = std::ranges::max_element(
        by_slot, {}, [](const auto& slot_and_members) { return slot_and_members.second.size(); });
    if (most == by_slot.end() || most->second.size() < 2) return best;
    members = std::move(most->second);
  }
}

}  // namespace attend
