// Pages of a case, and the arrays of its KvIndex.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/kernels/metadata/kv_index.h"
#include "tests/kernels/conformance/cases/attention_case.h"
#include "tests/kernels/conformance/cases/new_tokens.h"

namespace attend::conformance {

// Table entries of pages without visible positions, and entries after a request's length, are huge ids. Page
// 0 is the padding page and row 0 the padding row; both are only for padding requests.
struct CaseIndex {
  CaseIndex(const AttentionCase& c, const NewTokens& tokens);

  int page_size = 1;
  int num_pages = 0;                        // pages of the pool with the K/V
  std::vector<std::vector<int32_t>> pages;  // [num_reqs][page of the request]: page that contains the K/V
  // With a slot map, kRequestRows contains these pages instead of `pages`.
  std::vector<std::vector<int32_t>> row_pages;

  std::vector<int32_t> table, rows, indptr, slot_map;
  int64_t table_stride = 0;

  kernels::KvIndex view(const AttentionCase& c) const;
  // Pool slot of position `p` of a request.
  int32_t slot(int request, int32_t p) const {
    return pages[static_cast<size_t>(request)][static_cast<size_t>(p / page_size)] * page_size +
           p % page_size;
  }
};

}  // namespace attend::conformance
