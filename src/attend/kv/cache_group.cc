#include "attend/kv/cache_group.h"

namespace attend {

std::vector<std::unique_ptr<CacheGroup>> make_cache_groups(std::span<const CacheSpec> caches,
                                                           ReqToTokenPool& rows, SlotAllocator& slots,
                                                           SwaSlots* window_slots) {
  std::vector<std::unique_ptr<CacheGroup>> groups;
  // Full, latent and window layers of one pool share the token slots, so one group is used for all of them.
  groups.push_back(make_paged_group(rows, slots));
  if (window_slots != nullptr)
    groups.push_back(make_window_group(rows, *window_slots, widest_window_left(caches)));
  return groups;
}

}  // namespace attend
