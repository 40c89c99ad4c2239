// Random batches: derived arrays match the definition for each position.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "attend/base/math.h"
#include "attend/kernels/attention/attention_batch.h"
#include "attend/kernels/metadata/find_page.h"
#include "attend/kernels/metadata/kv_index.h"
#include "attend/kernels/metadata/metadata.h"

namespace attend::kernels {
namespace {

// Requests with pages shuffled over a pool, like those of a paged allocator. Unused entries are poisoned.
struct PagedRequests {
  int page_size = 1;
  int64_t stride = 0;
  std::vector<int32_t> seqlen_kv, rows, table, slot_map;
  bool translated = false;

  PagedRequests() {
    page_size = *rc::gen::element(1, 2, 16, 64, 256);
    const int num_reqs = *rc::gen::inRange(0, 6);
    for (int r = 0; r < num_reqs; ++r) seqlen_kv.push_back(*rc::gen::inRange(0, 3 * page_size + 2));
    translated = *rc::gen::arbitrary<bool>();
    const int64_t longest = seqlen_kv.empty() ? 0 : *std::max_element(seqlen_kv.begin(), seqlen_kv.end());
    stride = std::max<int64_t>(longest + *rc::gen::inRange(0, 5), 1);

    std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
    std::vector<int32_t> pages(64), swa_pages(64);
    std::iota(pages.begin(), pages.end(), 1);
    swa_pages = pages;
    std::shuffle(pages.begin(), pages.end(), random);
    std::shuffle(swa_pages.begin(), swa_pages.end(), random);
    slot_map.assign(static_cast<size_t>(65 * page_size), 0);
    for (size_t page = 1; page <= 64; ++page)
      for (int offset = 0; offset < page_size; ++offset)
        slot_map[page * static_cast<size_t>(page_size) + static_cast<size_t>(offset)] =
            swa_pages[page - 1] * page_size + offset;

    rows.resize(seqlen_kv.size());
    std::iota(rows.begin(), rows.end(), 1);
    std::shuffle(rows.begin(), rows.end(), random);
    table.assign((rows.size() + 1) * static_cast<size_t>(stride), 0x7fffff00);
    for (size_t r = 0; r < rows.size(); ++r)
      for (int32_t p = 0; p < seqlen_kv[r]; ++p) {
        if (p % page_size == 0) {
          current_ = pages.back();
          pages.pop_back();
        }
        table[static_cast<size_t>(rows[r] * stride + p)] = current_ * page_size + p % page_size;
      }
  }

  RequestRows view() const {
    return {.table = table.data(),
            .stride = stride,
            .rows = rows,
            .seqlen_kv = seqlen_kv,
            .slot_map = translated ? slot_map.data() : nullptr};
  }
  KvIndex request_rows_index() const {
    return {.kind = KvIndexKind::kRequestRows,
            .page_size = page_size,
            .table = table.data(),
            .table_stride = stride,
            .rows = rows.data(),
            .slot_map = translated ? slot_map.data() : nullptr};
  }
  // Page of position p by definition: its slot, translated and divided.
  int32_t naive_page(size_t r, int32_t p) const {
    const int32_t slot = table[static_cast<size_t>(rows[r] * stride + p)];
    return (translated ? slot_map[static_cast<size_t>(slot)] : slot) / page_size;
  }

 private:
  int32_t current_ = 0;
};

RC_GTEST_PROP(MetadataProperty, PageTableAndCsrFindThePageOfEveryPosition, ()) {
  const PagedRequests requests;
  const int page_size = requests.page_size;
  int width = *rc::gen::inRange(0, 3), num_pages = 0;
  for (int32_t seqlen_kv : requests.seqlen_kv) {
    width = std::max(width, ceil_div(seqlen_kv, page_size));
    num_pages += ceil_div(seqlen_kv, page_size);
  }
  std::vector<int32_t> page_table(requests.rows.size() * static_cast<size_t>(width), -1);
  build_page_table(requests.view(), page_size, width, page_table);
  std::vector<int32_t> indptr(requests.rows.size() + 1), indices(static_cast<size_t>(num_pages));
  build_csr(requests.view(), page_size, indptr, indices);
  RC_ASSERT(indptr.back() == num_pages);

  const KvIndex by_rows = requests.request_rows_index();
  const KvIndex by_table{.kind = KvIndexKind::kPageTable,
                         .page_size = page_size,
                         .table = page_table.data(),
                         .table_stride = width};
  const KvIndex by_csr{
      .kind = KvIndexKind::kCsr, .page_size = page_size, .table = indices.data(), .indptr = indptr.data()};
  for (size_t r = 0; r < requests.rows.size(); ++r) {
    for (int32_t p = 0; p < requests.seqlen_kv[r]; ++p) {
      const int32_t expected = requests.naive_page(r, p);
      RC_ASSERT(find_page(by_table, static_cast<int>(r), p) == expected);
      RC_ASSERT(find_page(by_csr, static_cast<int>(r), p) == expected);
      RC_ASSERT(find_page(by_rows, static_cast<int>(r), p) == expected);
    }
    for (int j = ceil_div(requests.seqlen_kv[r], page_size); j < width; ++j)
      RC_ASSERT(page_table[r * static_cast<size_t>(width) + static_cast<size_t>(j)] == -1);
  }
}

RC_GTEST_PROP(MetadataProperty, VirtualBatchesShowEveryTokenExactlyItsChunk, ()) {
  const int page_size = *rc::gen::element(1, 2, 4);
  const int chunk = page_size * *rc::gen::inRange(1, 5);
  const int num_reqs = *rc::gen::inRange(0, 5);
  std::vector<int32_t> cu_seqlen_q{0}, seqlen_kv;
  for (int r = 0; r < num_reqs; ++r) {
    seqlen_kv.push_back(*rc::gen::inRange(0, 40));
    cu_seqlen_q.push_back(cu_seqlen_q.back() + *rc::gen::inRange(0, seqlen_kv.back() + 1));
  }
  const int width = 40;
  std::vector<int32_t> page_table(static_cast<size_t>(num_reqs * width));
  std::iota(page_table.begin(), page_table.end(), 1);
  const VirtualBatches batches =
      local_attention_batches(chunk, page_size, cu_seqlen_q, seqlen_kv, page_table, width);
  const size_t num_virtual = batches.seqlen_q.size();
  RC_ASSERT(num_virtual <= static_cast<size_t>(max_virtual_batches(num_reqs, cu_seqlen_q.back(), chunk)));
  RC_ASSERT(batches.cu_seqlen_q.size() == num_virtual + 1);
  RC_ASSERT(batches.cu_seqlen_q.back() == cu_seqlen_q.back());

  // Causal attention over each virtual request must equal the chunk rule of its request for every token.
  size_t v = 0;
  for (size_t r = 0; r < seqlen_kv.size(); ++r)
    for (int32_t token = cu_seqlen_q[r]; token < cu_seqlen_q[r + 1]; ++token) {
      while (batches.cu_seqlen_q[v + 1] <= token) ++v;
      const int32_t position = seqlen_kv[r] - (cu_seqlen_q[r + 1] - token);
      const int32_t local = batches.seqlen_kv[v] - (batches.cu_seqlen_q[v + 1] - token);  // last visible key
      RC_ASSERT(batches.kv_start[v] == first_unmasked({.chunk = chunk}, position));
      RC_ASSERT(batches.kv_start[v] + local == position);
      for (int32_t k = 0; k <= local; ++k) {
        const int32_t page = batches.page_table[v * static_cast<size_t>(batches.pages_per_chunk) +
                                                static_cast<size_t>(k / page_size)];
        const int32_t expected = page_table[r * static_cast<size_t>(width) +
                                            static_cast<size_t>((batches.kv_start[v] + k) / page_size)];
        RC_ASSERT(page == expected);
        RC_ASSERT((batches.kv_start[v] + k) % page_size == k % page_size);
      }
    }
}

RC_GTEST_PROP(MetadataProperty, EveryTreeMaskLayoutPacksToTheSameWords, ()) {
  const int num_reqs = *rc::gen::inRange(0, 4);
  std::vector<int32_t> cu_seqlen_q{0}, seqlen_kv;
  std::vector<uint8_t> full, qlen_only, bits;
  std::vector<std::vector<bool>> visible;  // [num_tokens][seqlen_q of its request]
  int32_t longest = 0;
  for (int r = 0; r < num_reqs; ++r) {
    const int32_t seqlen_q = *rc::gen::inRange(0, 80), prefix = *rc::gen::inRange(0, 9);
    longest = std::max(longest, seqlen_q);
    cu_seqlen_q.push_back(cu_seqlen_q.back() + seqlen_q);
    seqlen_kv.push_back(prefix + seqlen_q);
    std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
    const size_t first_byte = bits.size();
    bits.resize(first_byte + static_cast<size_t>(ceil_div(seqlen_q * seqlen_q, 8)));
    for (int32_t i = 0; i < seqlen_q; ++i) {
      full.insert(full.end(), static_cast<size_t>(prefix), 1);
      std::vector<bool> row;
      for (int32_t j = 0; j < seqlen_q; ++j) {
        const bool sees = random() % 2 == 0;
        row.push_back(sees);
        full.push_back(sees);
        qlen_only.push_back(sees);
        const auto bit = static_cast<size_t>(i * seqlen_q + j);
        if (sees)
          bits[first_byte + bit / 8] = static_cast<uint8_t>(bits[first_byte + bit / 8] | 1 << bit % 8);
      }
      visible.push_back(row);
    }
  }
  const int num_words = ceil_div(longest, 64) + *rc::gen::inRange(0, 2);
  std::vector<uint64_t> expected(visible.size() * static_cast<size_t>(num_words), 0);
  for (size_t token = 0; token < visible.size(); ++token)
    for (size_t j = 0; j < visible[token].size(); ++j)
      if (visible[token][j])
        expected[token * static_cast<size_t>(num_words) + j / 64] |= uint64_t{1} << j % 64;
  for (const auto& [layout, mask] : {std::pair{TreeMaskLayout::kFullMask, full},
                                     {TreeMaskLayout::kQlenOnly, qlen_only},
                                     {TreeMaskLayout::kBitPacked, bits}}) {
    std::vector<uint64_t> words(expected.size(), ~uint64_t{0});
    pack_tree_mask(layout, mask, cu_seqlen_q, seqlen_kv, num_words, words);
    RC_ASSERT(words == expected);
  }
}

RC_GTEST_PROP(MetadataProperty, NumKvSplitsStayWithinTheirLimits, ()) {
  const int num_kv_heads = *rc::gen::element(1, 2, 8), group_size = *rc::gen::element(1, 3, 4, 16, 128);
  const int max_splits = *rc::gen::inRange(1, 33), num_sms = *rc::gen::inRange(1, 200);
  std::vector<int32_t> seqlen_kv;
  const int num_reqs = *rc::gen::inRange(1, 20);
  for (int r = 0; r < num_reqs; ++r) seqlen_kv.push_back(*rc::gen::inRange(1, 100000));
  const auto splits = num_kv_splits(seqlen_kv, num_kv_heads * group_size, num_kv_heads, max_splits, num_sms);
  RC_ASSERT(splits.size() == seqlen_kv.size());
  for (size_t r = 0; r < splits.size(); ++r) {
    RC_ASSERT(splits[r] >= 1 && splits[r] <= max_splits);
    for (size_t other = 0; other < splits.size(); ++other)
      RC_ASSERT(seqlen_kv[r] > seqlen_kv[other] || splits[r] <= splits[other]);
  }
}

}  // namespace
}  // namespace attend::kernels
