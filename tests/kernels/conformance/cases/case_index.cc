#include "tests/kernels/conformance/cases/case_index.h"

#include <algorithm>
#include <numeric>

#include "attend/base/math.h"
#include "tests/kernels/conformance/cases/poison.h"
#include "tests/kernels/conformance/cases/random.h"

namespace attend::conformance {
namespace {

using kernels::KvIndexKind;

struct PageBuilder {
  const AttentionCase& c;
  const NewTokens& tokens;
  CaseIndex& index;
  Random random{c.seed, /*stream=*/2};

  size_t num_real_reqs() const { return c.requests.size(); }
  int num_pages_for(size_t r) const { return ceil_div(tokens.seqlen_kv[r], index.page_size); }

  // Number of pages that request r shares with request 0.
  int num_shared_pages(size_t r) const {
    if (!c.shared_prefix || r == 0) return 0;
    const auto prefix_len = [](const Lengths& lengths) {
      return std::max(0, lengths.seqlen_kv - lengths.seqlen_q);
    };
    return std::min(prefix_len(c.requests[0]), prefix_len(c.requests[r])) / index.page_size;
  }

  // Pairs (request, page of the request) in the order in which pages of the pool are assigned.
  std::vector<std::pair<size_t, int>> owners() const {
    std::vector<std::pair<size_t, int>> all;
    for (size_t r = 0; r < num_real_reqs(); ++r)
      for (int page = num_shared_pages(r); page < num_pages_for(r); ++page) all.emplace_back(r, page);
    if (c.page_order == PageOrder::kInterleaved)
      std::stable_sort(all.begin(), all.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return all;
  }

  // Selects `count` ids from the pages 1 to limit - 1.
  std::vector<int32_t> page_ids(size_t count, int limit, PageOrder order) {
    std::vector<int32_t> ids(static_cast<size_t>(limit) - 1);
    std::iota(ids.begin(), ids.end(), 1);
    if (order == PageOrder::kShuffled) random.shuffle(ids);
    if (order == PageOrder::kReversed) std::reverse(ids.begin(), ids.end());
    ids.resize(count);
    return ids;
  }

  std::vector<std::vector<int32_t>> assign(const std::vector<int32_t>& ids) const {
    std::vector<std::vector<int32_t>> pages(static_cast<size_t>(c.num_reqs()));
    for (size_t r = 0; r < num_real_reqs(); ++r) pages[r].resize(static_cast<size_t>(num_pages_for(r)));
    for (size_t r = num_real_reqs(); r < pages.size(); ++r) pages[r] = {0};
    const auto all = owners();
    for (size_t i = 0; i < all.size(); ++i) pages[all[i].first][static_cast<size_t>(all[i].second)] = ids[i];
    for (size_t r = 1; r < num_real_reqs(); ++r)
      std::copy_n(pages[0].begin(), num_shared_pages(r), pages[r].begin());
    return pages;
  }

  void build_contiguous() {
    index.indptr = {0};
    for (int32_t length : tokens.seqlen_kv) index.indptr.push_back(index.indptr.back() + length);
    for (size_t r = 0; r < tokens.seqlen_kv.size(); ++r) {
      index.pages.emplace_back(static_cast<size_t>(tokens.seqlen_kv[r]));
      std::iota(index.pages[r].begin(), index.pages[r].end(), index.indptr[r]);
    }
    index.num_pages = index.indptr.back() + 1;
  }

  void build_paged() {
    const size_t used = owners().size();
    index.num_pages = static_cast<int>(used + used / 2) + 3;
    index.pages = index.row_pages = assign(page_ids(used, index.num_pages, c.page_order));
    if (!c.slot_map) return;
    const int num_full_pages = index.num_pages + 4;
    index.row_pages = assign(page_ids(used, num_full_pages, PageOrder::kShuffled));
    index.slot_map.assign(static_cast<size_t>(num_full_pages * index.page_size), kHugeId);
    for (size_t r = 0; r < index.pages.size(); ++r)
      for (size_t page = 0; page < index.pages[r].size(); ++page)
        if (is_page_unmasked(r, page))
          for (int i = 0; i < index.page_size; ++i)
            index.slot_map[static_cast<size_t>(index.row_pages[r][page] * index.page_size + i)] =
                index.pages[r][page] * index.page_size + i;
  }

  bool is_page_unmasked(size_t r, size_t page) const {
    const PositionRange range = unmasked_range(c, tokens, static_cast<int>(r));
    const auto begin = static_cast<int32_t>(page) * index.page_size;
    return begin < range.end && range.first < begin + index.page_size;
  }

  // Page id of request r that the index contains.
  int32_t named_page(size_t r, size_t page) const {
    return is_page_unmasked(r, page) ? index.row_pages[r][page] : kHugeId;
  }

  void fill_request_rows() {
    const auto num_reqs = static_cast<int>(index.pages.size());
    const int32_t longest = *std::max_element(tokens.seqlen_kv.begin(), tokens.seqlen_kv.end());
    index.table_stride = round_up(longest, index.page_size) + 7;
    std::vector<int32_t> row_ids = page_ids(num_real_reqs(), num_reqs + 3, PageOrder::kShuffled);
    row_ids.resize(index.pages.size(), 0);
    index.rows = row_ids;
    index.table.assign(static_cast<size_t>((num_reqs + 3) * index.table_stride), kHugeId);
    std::fill_n(index.table.begin(), index.table_stride, 0);
    for (size_t r = 0; r < num_real_reqs(); ++r)
      for (size_t page = 0; page < index.pages[r].size(); ++page)
        if (is_page_unmasked(r, page))
          for (int i = 0; i < index.page_size; ++i)
            index.table[static_cast<size_t>(index.rows[r] * index.table_stride) +
                        page * static_cast<size_t>(index.page_size) + static_cast<size_t>(i)] =
                index.row_pages[r][page] * index.page_size + i;
  }

  void fill_page_table() {
    size_t longest = 0;
    for (const auto& pages : index.pages) longest = std::max(longest, pages.size());
    index.table_stride = static_cast<int64_t>(longest) + 3;
    index.table.assign(index.pages.size() * static_cast<size_t>(index.table_stride), kHugeId);
    for (size_t r = 0; r < index.pages.size(); ++r)
      for (size_t page = 0; page < index.pages[r].size(); ++page)
        index.table[r * static_cast<size_t>(index.table_stride) + page] = named_page(r, page);
  }

  void fill_csr() {
    index.indptr = {0};
    for (size_t r = 0; r < index.pages.size(); ++r) {
      for (size_t page = 0; page < index.pages[r].size(); ++page) index.table.push_back(named_page(r, page));
      index.indptr.push_back(static_cast<int32_t>(index.table.size()));
    }
    index.table.insert(index.table.end(), 3, kHugeId);
  }
};

}  // namespace

CaseIndex::CaseIndex(const AttentionCase& c, const NewTokens& tokens) : page_size(c.page_size) {
  PageBuilder builder{.c = c, .tokens = tokens, .index = *this};
  if (c.index == KvIndexKind::kContiguous) {
    builder.build_contiguous();
    return;
  }
  builder.build_paged();
  // A step without requests has tables too.
  if (pages.empty()) {
    table = rows = {kHugeId};
    indptr = {0};
    return;
  }
  if (c.index == KvIndexKind::kRequestRows) builder.fill_request_rows();
  if (c.index == KvIndexKind::kPageTable) builder.fill_page_table();
  if (c.index == KvIndexKind::kCsr) builder.fill_csr();
}

kernels::KvIndex CaseIndex::view(const AttentionCase& c) const {
  const auto data = [](const std::vector<int32_t>& array) { return array.empty() ? nullptr : array.data(); };
  return {.kind = c.index,
          .page_size = page_size,
          .table = data(table),
          .table_stride = table_stride,
          .rows = data(rows),
          .indptr = data(indptr),
          .slot_map = data(slot_map)};
}

}  // namespace attend::conformance
