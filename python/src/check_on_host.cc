#include "check_on_host.h"

#include <string_view>

#include "attend/base/math.h"
#include "attend/kernels/page_of.h"

namespace attend::python {
namespace {

using kernels::KvIndex;
using kernels::KvIndexKind;
using kernels::Lengths;

int32_t length_of(const Lengths& lengths, int32_t r) {
  if (lengths.cu != nullptr) return lengths.cu[r + 1] - lengths.cu[r];
  return lengths.each != nullptr ? lengths.each[r] : lengths.all;
}

// 0 = cu[0] <= cu[1] <= ... <= cu[num_reqs] <= size.
void check_sums(std::string_view name, const int32_t* cu, int32_t num_reqs, int64_t size) {
  if (cu == nullptr) return;
  require(cu[0] == 0, name, "[0] is ", cu[0], ": expected 0");
  for (int32_t r = 0; r < num_reqs; ++r)
    require(cu[r] <= cu[r + 1], name, " falls from ", cu[r], " to ", cu[r + 1], " at request ", r);
  require(cu[num_reqs] <= size, name, " ends at ", cu[num_reqs], ": there are ", size, " tokens");
}

void check_pages(const KvIndex& index, int32_t r, int32_t seqlen_kv, int64_t num_pages) {
  for (int32_t p = 0; p < seqlen_kv; p += index.page_size) {
    const int32_t page = kernels::page_of(index, r, p);
    require(page >= 0 && page < num_pages, "page id ", page, " at position ", p, " of request ", r,
            ": the cache has ", num_pages, " pages");
  }
}

}  // namespace

int64_t num_kv_tokens_on_host(const AttentionCall& call) {
  int64_t sum = 0;
  for (int32_t r = 0; r < call.source.num_reqs; ++r) {
    const int32_t seqlen_cached = length_of(call.source.seqlen_cached, r);
    require(seqlen_cached >= 0, "request ", r, " has ", seqlen_cached, " keys: expected none below 0");
    sum += seqlen_cached + length_of(call.source.seqlen_new, r);
  }
  return sum;
}

void check_on_host(const AttentionCall& call) {
  const kernels::BatchSource& source = call.source;
  const KvIndex& index = call.kv.index;
  const int64_t num_pages = call.kv.k.shape[0];
  check_sums("cu_seqlens_q", source.seqlen_q.cu, source.num_reqs, call.q.shape[0]);
  check_sums("cu_seqlens_k", source.seqlen_cached.cu, source.num_reqs, num_pages);
  check_sums("cu_seqlens_k_new", source.seqlen_new.cu, source.num_reqs, call.k_new.shape[0]);
  for (int32_t r = 0; r < source.num_reqs; ++r) {
    const int64_t seqlen_kv = int64_t{length_of(source.seqlen_cached, r)} + length_of(source.seqlen_new, r);
    require(seqlen_kv <= source.places.capacity, "request ", r, " has ", seqlen_kv,
            " keys: there is room for ", source.places.capacity);
    if (source.places.rows != nullptr) {
      const int32_t row = source.places.rows[r];
      require(row >= 0 && int64_t{row} * source.places.row_spacing < num_pages, "cache_batch_idx ", row,
              " of request ", r, ": the cache has ", ceil_div<int64_t>(num_pages, source.places.row_spacing),
              " rows");
    }
    if (index.kind != KvIndexKind::kContiguous)
      check_pages(index, r, static_cast<int32_t>(seqlen_kv), num_pages);
    else if (index.indptr != nullptr)
      require(index.indptr[r] >= 0 && index.indptr[r] + seqlen_kv <= num_pages, "request ", r, " has ",
              seqlen_kv, " keys from ", index.indptr[r], " on: there are ", num_pages);
  }
}

}  // namespace attend::python
