#include <algorithm>
#include <cmath>
#include <cstring>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/metadata/check_page_size.h"
#include "attend/kernels/metadata/metadata.h"

namespace attend::kernels {
namespace {

void check_cu_seqlen_q(View<const int32_t> cu_seqlen_q, size_t num_reqs, std::string_view caller) {
  require(cu_seqlen_q.size() == num_reqs + 1 && cu_seqlen_q[0] == 0, "cu_seqlen_q of ", cu_seqlen_q.size(),
          " entries: ", caller, " needs ", num_reqs + 1, ", the first one 0");
  for (size_t r = 0; r < num_reqs; ++r)
    require(cu_seqlen_q[r] <= cu_seqlen_q[r + 1], "cu_seqlen_q falls from ", cu_seqlen_q[r], " to ",
            cu_seqlen_q[r + 1], " at request ", r, ": ", caller, " needs ascending values");
}

void check_seqlens(View<const int32_t> cu_seqlen_q, View<const int32_t> seqlen_kv, std::string_view caller) {
  check_cu_seqlen_q(cu_seqlen_q, seqlen_kv.size(), caller);
  for (size_t r = 0; r < seqlen_kv.size(); ++r) {
    const int32_t seqlen_q = cu_seqlen_q[r + 1] - cu_seqlen_q[r];
    require(seqlen_q <= seqlen_kv[r], "seqlen_kv ", seqlen_kv[r], " of request ", r, ": ", caller,
            " needs at least its ", seqlen_q, " new tokens");
  }
}

int32_t max_seqlen_q(View<const int32_t> cu_seqlen_q) {
  int32_t longest = 0;
  for (size_t r = 0; r + 1 < cu_seqlen_q.size(); ++r)
    longest = std::max(longest, cu_seqlen_q[r + 1] - cu_seqlen_q[r]);
  return longest;
}

void check_tree_mask_words(int tree_mask_words, View<const int32_t> cu_seqlen_q, std::string_view caller) {
  const int needed = ceil_div(max_seqlen_q(cu_seqlen_q), 64);
  require(tree_mask_words >= needed, "tree_mask_words ", tree_mask_words, ": ", caller, " needs ", needed,
          ", one bit per new token of the longest request");
}

// Returns the bytes of one request's mask.
size_t mask_bytes(TreeMaskLayout layout, int32_t seqlen_q, int32_t seqlen_kv) {
  const auto q = static_cast<size_t>(seqlen_q);
  switch (layout) {
    case TreeMaskLayout::kFullMask:
      return q * static_cast<size_t>(seqlen_kv);
    case TreeMaskLayout::kQlenOnly:
      return q * q;
    case TreeMaskLayout::kBitPacked:
      return ceil_div(q * q, size_t{8});
  }
  fail(ErrorCode::kInternal, "pack_tree_mask: layout ", static_cast<int>(layout));
}

}  // namespace

int max_virtual_batches(int num_reqs, int num_tokens, int chunk) {
  require(chunk > 0, "chunk ", chunk, ": max_virtual_batches needs at least 1");
  return static_cast<int>(
      std::min<int64_t>(2 * int64_t{num_reqs} + ceil_div(num_tokens, chunk), int64_t{num_tokens}));
}

VirtualBatches local_attention_batches(int chunk, int page_size, View<const int32_t> cu_seqlen_q,
                                       View<const int32_t> seqlen_kv, View<const int32_t> page_table,
                                       int page_table_width) {
  constexpr std::string_view kCaller = "local_attention_batches";
  check_page_size(page_size, kCaller);
  require(chunk > 0 && chunk % page_size == 0, "chunk ", chunk, ": ", kCaller,
          " needs a multiple of page_size ", page_size);
  check_seqlens(cu_seqlen_q, seqlen_kv, kCaller);
  require(
      page_table_width >= 0 && page_table.size() >= seqlen_kv.size() * static_cast<size_t>(page_table_width),
      "page_table of ", page_table.size(), " entries: ", kCaller, " needs ", seqlen_kv.size(), " x ",
      page_table_width);
  VirtualBatches batches;
  batches.pages_per_chunk = chunk / page_size;
  batches.cu_seqlen_q.push_back(0);
  for (size_t r = 0; r < seqlen_kv.size(); ++r) {
    require(ceil_div(seqlen_kv[r], page_size) <= page_table_width, "page_table_width ", page_table_width,
            ": ", kCaller, " needs ", ceil_div(seqlen_kv[r], page_size), " pages for request ", r);
    const int32_t* pages = page_table.data() + r * static_cast<size_t>(page_table_width);
    const int32_t first_position = seqlen_kv[r] - (cu_seqlen_q[r + 1] - cu_seqlen_q[r]);
    for (int32_t begin = first_position, end; begin < seqlen_kv[r]; begin = end) {
      const int32_t kv_start = begin / chunk * chunk;
      end = static_cast<int32_t>(std::min<int64_t>(int64_t{kv_start} + chunk, seqlen_kv[r]));
      batches.seqlen_q.push_back(end - begin);
      batches.cu_seqlen_q.push_back(batches.cu_seqlen_q.back() + end - begin);
      batches.seqlen_kv.push_back(end - kv_start);
      batches.kv_start.push_back(kv_start);
      for (int j = 0; j < batches.pages_per_chunk; ++j) {
        const int page_idx = kv_start / page_size + j;
        batches.page_table.push_back(page_idx < page_table_width ? pages[page_idx] : 0);
      }
    }
  }
  return batches;
}

std::vector<int32_t> num_kv_splits(View<const int32_t> seqlen_kv, int num_q_heads, int num_kv_heads,
                                   int max_splits, int num_sms) {
  constexpr std::string_view kCaller = "num_kv_splits";
  require(num_kv_heads > 0 && num_q_heads > 0 && num_q_heads % num_kv_heads == 0, "num_q_heads ", num_q_heads,
          ": ", kCaller, " needs a multiple of num_kv_heads ", num_kv_heads);
  require(max_splits > 0 && num_sms > 0, "max_splits ", max_splits, ", num_sms ", num_sms, ": ", kCaller,
          " needs at least 1");
  for (size_t r = 0; r < seqlen_kv.size(); ++r)
    require(seqlen_kv[r] >= 1, "seqlen_kv ", seqlen_kv[r], " of request ", r, ": ", kCaller,
            " needs at least 1, also for padding requests");
  if (seqlen_kv.empty()) return {};

  const auto [shortest, longest] = std::minmax_element(seqlen_kv.begin(), seqlen_kv.end());
  const int64_t max_len = *longest;
  // Lengths within 20 % of each other count as equal.
  const int64_t min_len = 8 * max_len < 10 * int64_t{*shortest} ? max_len : *shortest;
  // Rule 1: splits as long as the shortest request.
  const int64_t splits_by_length = std::min<int64_t>(ceil_div(max_len, min_len), max_splits);
  // Rule 2: enough splits for all SMs, more for longer KV. A kernel instance handles up to 16 query heads of
  // a group.
  const int group_size = num_q_heads / num_kv_heads;
  const int64_t head_tiles = ceil_div(num_q_heads, std::min(16, group_size));
  const int64_t grid = static_cast<int64_t>(seqlen_kv.size()) * head_tiles;
  const double depth = std::max(std::log2(static_cast<double>(max_len) / 64.0), 1.0);
  const auto wanted = static_cast<int64_t>(num_sms * depth);
  const int64_t splits_by_sms = std::min<int64_t>(ceil_div(wanted, grid), max_splits);

  const int64_t split_len_by_length = ceil_div(max_len, splits_by_length);
  const int64_t split_len_by_sms = ceil_div(max_len, splits_by_sms);
  std::vector<int32_t> splits;
  splits.reserve(seqlen_kv.size());
  for (int64_t len : seqlen_kv)
    splits.push_back(
        static_cast<int32_t>(std::max(ceil_div(len, split_len_by_length), ceil_div(len, split_len_by_sms))));
  return splits;
}

void pack_tree_mask(TreeMaskLayout layout, View<const uint8_t> mask, View<const int32_t> cu_seqlen_q,
                    View<const int32_t> seqlen_kv, int tree_mask_words, View<uint64_t> words) {
  constexpr std::string_view kCaller = "pack_tree_mask";
  check_seqlens(cu_seqlen_q, seqlen_kv, kCaller);
  check_tree_mask_words(tree_mask_words, cu_seqlen_q, kCaller);
  const auto row_words = static_cast<size_t>(tree_mask_words);
  const auto num_tokens = static_cast<size_t>(cu_seqlen_q.back());
  require(words.size() >= num_tokens * row_words, "words of ", words.size(), " entries: ", kCaller, " needs ",
          num_tokens, " x ", row_words);
  size_t num_bytes = 0;
  for (size_t r = 0; r < seqlen_kv.size(); ++r)
    num_bytes += mask_bytes(layout, cu_seqlen_q[r + 1] - cu_seqlen_q[r], seqlen_kv[r]);
  require(mask.size() == num_bytes, "mask of ", mask.size(), " bytes: ", kCaller, " needs ", num_bytes);

  std::fill(words.begin(), words.end(), uint64_t{0});
  const uint8_t* request_mask = mask.data();
  for (size_t r = 0; r < seqlen_kv.size(); ++r) {
    const auto seqlen_q = static_cast<size_t>(cu_seqlen_q[r + 1] - cu_seqlen_q[r]);
    const auto prefix =
        layout == TreeMaskLayout::kFullMask ? static_cast<size_t>(seqlen_kv[r]) - seqlen_q : 0;
    for (size_t i = 0; i < seqlen_q; ++i) {
      uint64_t* row = words.data() + (static_cast<size_t>(cu_seqlen_q[r]) + i) * row_words;
      const uint8_t* bytes = request_mask + i * (prefix + seqlen_q);
      if (prefix > 0) {
        const void* hidden = std::memchr(bytes, 0, prefix);
        if (hidden != nullptr)
          fail(ErrorCode::kUnsupported, "tree mask hides key ", static_cast<const uint8_t*>(hidden) - bytes,
               " from new token ", i, " of request ", r, ": ", kCaller, " needs the whole prefix of ", prefix,
               " keys visible");
      }
      for (size_t j = 0; j < seqlen_q; ++j) {
        const size_t bit = i * seqlen_q + j;
        const bool visible = layout == TreeMaskLayout::kBitPacked ? request_mask[bit / 8] >> (bit % 8) & 1
                                                                  : bytes[prefix + j] != 0;
        if (visible) row[j / 64] |= uint64_t{1} << (j % 64);
      }
    }
    request_mask += mask_bytes(layout, static_cast<int32_t>(seqlen_q), seqlen_kv[r]);
  }
}

TreeRequests expand_tree_requests(View<const uint64_t> tree_mask, int tree_mask_words,
                                  View<const int32_t> cu_seqlen_q, View<const int32_t> slots) {
  constexpr std::string_view kCaller = "expand_tree_requests";
  require(!cu_seqlen_q.empty(), "cu_seqlen_q of 0 entries: ", kCaller, " needs one more entry than requests");
  check_cu_seqlen_q(cu_seqlen_q, cu_seqlen_q.size() - 1, kCaller);
  check_tree_mask_words(tree_mask_words, cu_seqlen_q, kCaller);
  const auto num_tokens = static_cast<size_t>(cu_seqlen_q.back());
  const auto row_words = static_cast<size_t>(tree_mask_words);
  require(slots.size() == num_tokens && tree_mask.size() == num_tokens * row_words, "slots of ", slots.size(),
          " tokens, tree_mask of ", tree_mask.size(), " words: ", kCaller, " needs ", num_tokens, " and ",
          num_tokens, " x ", row_words);
  TreeRequests requests;
  requests.width = max_seqlen_q(cu_seqlen_q);
  requests.seqlen_kv.reserve(num_tokens);
  requests.slots.assign(num_tokens * static_cast<size_t>(requests.width), 0);
  for (size_t r = 0; r + 1 < cu_seqlen_q.size(); ++r) {
    const auto begin = static_cast<size_t>(cu_seqlen_q[r]), end = static_cast<size_t>(cu_seqlen_q[r + 1]);
    for (size_t token = begin; token < end; ++token) {
      const uint64_t* row = tree_mask.data() + token * row_words;
      const auto sees = [&](size_t j) { return (row[j / 64] >> (j % 64) & 1) != 0; };
      int32_t* next = requests.slots.data() + token * static_cast<size_t>(requests.width);
      int32_t num_seen = 0;
      for (size_t j = 0; j < end - begin; ++j)
        if (sees(j)) next[num_seen++] = slots[begin + j];
      requests.seqlen_kv.push_back(num_seen);
      next += num_seen;
      for (size_t j = 0; j < end - begin; ++j)
        if (!sees(j)) *next++ = slots[begin + j];
    }
  }
  return requests;
}

}  // namespace attend::kernels
