#include "attend/kv/cache_group.h"

namespace attend {

std::vector<std::unique_ptr<CacheGroup>> make_cache_groups(std::span<const CacheSpec> caches,
                                                           ReqToTokenPool& rows, SlotAllocator& slots,
                                                           const GroupSlots& group_slots) {
  std::vector<std::unique_ptr<CacheGroup>> groups;
  // Full, latent and window layers of one pool share the token slots, so one group is used for all of them.
  groups.push_back(make_paged_group(rows, slots));
  if (group_slots.window != nullptr)
    groups.push_back(make_window_group(rows, *group_slots.window, widest_window_left(caches)));
  if (group_slots.states != nullptr)
    groups.push_back(make_state_group(rows, *group_slots.states, group_slots.state_options));
  return groups;
}

}  // namespace attend
