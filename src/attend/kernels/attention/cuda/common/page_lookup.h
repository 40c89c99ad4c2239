// Pages of one request: find_page() (find_page.h) with few instructions per position.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"
#include "attend/kernels/metadata/find_page.h"

namespace attend::kernels::cuda {

// Lookup in two steps, look_up() and find_page(), so that loads can be in flight in between.
class PageLookup {
 public:
  ATTEND_HOST_DEVICE PageLookup(const KvIndex& index, int request)
      : slot_map_(index.slot_map), shift_(page_shift(index.page_size)) {
    switch (index.kind) {
      case KvIndexKind::kRequestRows:
        entries_ = index.table + index.rows[request] * index.table_stride;
        back_ = shift_;
        return;
      case KvIndexKind::kPageTable:
        entries_ = index.table + request * index.table_stride;
        return;
      case KvIndexKind::kCsr:
        entries_ = index.table + index.indptr[request];
        return;
      case KvIndexKind::kContiguous:
        first_ = index.indptr[request];
        return;
    }
  }

  // Loads the entries of the positions with `needed` set; others are -1.
  template <int kCount>
  ATTEND_HOST_DEVICE void look_up(const int (&positions)[kCount], const bool (&needed)[kCount],
                                  int (&entries)[kCount]) const {
    for (int i = 0; i < kCount; ++i) entries[i] = -1;
    if (entries_ == nullptr) {
      for (int i = 0; i < kCount; ++i)
        if (needed[i]) entries[i] = first_ + positions[i];
      return;
    }
    for (int i = 0; i < kCount; ++i)
      if (needed[i]) entries[i] = entries_[positions[i] >> shift_ << back_];
    if (slot_map_ == nullptr) return;
    for (int i = 0; i < kCount; ++i)
      if (needed[i]) entries[i] = slot_map_[entries[i]];
  }

  // Returns the page of an entry; -1 for -1.
  ATTEND_HOST_DEVICE int find_page(int entry) const { return entry >> back_; }

 private:
  const int32_t* entries_ = nullptr;  // entries of the request, page ids or slots; null: K/V are contiguous
  const int32_t* slot_map_;
  int shift_;      // shift from positions to pages
  int back_ = 0;   // if entries are slots: shift from pages to their first slots
  int first_ = 0;  // contiguous: first token of the request
};

}  // namespace attend::kernels::cuda
