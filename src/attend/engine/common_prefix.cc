#include "attend/engine/common_prefix.h"

#include <algorithm>
#include <map>

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

// Page after page the requests that go on as most of them do.
CommonPrefix::Choice CommonPrefix::choose(std::span<const ScheduledRequest> requests) const {
  // Whole pages before the new token.
  const auto has_page = [&](int member, int page) {
    return requests[static_cast<size_t>(member)].request->num_computed / page_size_ > page;
  };
  // A page is shared as a whole: its first slot tells.
  const auto slot_of = [&](int member, int page) {
    return rows_.row(requests[static_cast<size_t>(member)]
                         .request->row)[static_cast<size_t>(page) * static_cast<size_t>(page_size_)];
  };
  Choice best;
  std::vector<int> members(requests.size());
  for (size_t i = 0; i < members.size(); ++i) members[i] = static_cast<int>(i);
  for (int page = 0;; ++page) {
    std::map<TokenSlot, std::vector<int>> by_slot;
    for (const int member : members)
      if (has_page(member, page)) by_slot[slot_of(member, page)].push_back(member);
    const auto most = std::ranges::max_element(
        by_slot, {}, [](const auto& slot_and_members) { return slot_and_members.second.size(); });
    if (most == by_slot.end() || most->second.size() < 2) return best;
    members = most->second;
    if (const Choice choice{page + 1, members}; choice.saved_pages() > best.saved_pages()) best = choice;
  }
}

}  // namespace attend
