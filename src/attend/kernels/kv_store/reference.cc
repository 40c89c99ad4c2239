#include "attend/kernels/common/element.h"
#include "attend/kernels/kv_store/reference_rows.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/kernels/kv_store/store.h"

namespace attend::kernels::reference {

void store_kv(const StoreKvArgs& args) {
  check(args);
  const int64_t page_size = args.to.k.shape[1];
  for (int64_t token = 0; token < args.k.shape[0]; ++token) {
    int32_t slot = args.to.slots[static_cast<size_t>(token)];
    if (slot < 0) continue;
    if (args.to.slot_map != nullptr) slot = args.to.slot_map[slot];
    if (slot < 0) continue;
    const int64_t page = slot / page_size, row = slot % page_size;
    for (int64_t head = 0; head < args.k.shape[1]; ++head) {
      for (int64_t d = 0; d < args.k.shape[2]; ++d)
        store(args.to.k, offset(args.to.k, page, row, head, d),
              load(args.k, offset(args.k, token, head, d)) / static_cast<double>(args.to.k_scale));
      for (int64_t d = 0; d < args.v.shape[2]; ++d)
        store(args.to.v, offset(args.to.v, page, row, head, d),
              load(args.v, offset(args.v, token, head, d)) / static_cast<double>(args.to.v_scale));
    }
  }
}

void store_mla(const StoreMlaArgs& args) {
  check(args);
  const int64_t page_size = args.to.k.shape[1];
  const int64_t rank = args.latent.shape[1];
  for (int64_t token = 0; token < args.latent.shape[0]; ++token) {
    int32_t slot = args.to.slots[static_cast<size_t>(token)];
    if (slot < 0) continue;
    if (args.to.slot_map != nullptr) slot = args.to.slot_map[slot];
    if (slot < 0) continue;
    const int64_t row = offset(args.to.k, slot / page_size, slot % page_size);
    if (has_scaled_rows(args.to.k)) {
      std::vector<double> values = load_row(args.latent, offset(args.latent, token), rank);
      const std::vector<double> rope = load_row(args.rope, offset(args.rope, token), args.rope.shape[1]);
      values.insert(values.end(), rope.begin(), rope.end());
      for (double& value : values) value /= static_cast<double>(args.to.k_scale);
      store_scaled_row(args.to.k, row, values);
      continue;
    }
    for (int64_t d = 0; d < rank; ++d)
      store(args.to.k, row + d,
            load(args.latent, offset(args.latent, token, d)) / static_cast<double>(args.to.k_scale));
    for (int64_t d = 0; d < args.rope.shape[1]; ++d)
      store(args.to.k, row + rank + d,
            load(args.rope, offset(args.rope, token, d)) / static_cast<double>(args.to.k_scale));
  }
}

}  // namespace attend::kernels::reference
