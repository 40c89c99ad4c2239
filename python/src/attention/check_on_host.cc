#include "attention/check_on_host.h"

#include <limits>

namespace attend::python {
namespace {

using kernels::KvIndex;
using kernels::KvIndexKind;
using kernels::Lengths;

// Requires 0 = cu[0] <= cu[1] <= ... <= cu[num_reqs] <= size.
void check_sums(std::string_view name, const int32_t* cu, int32_t num_reqs, int64_t size) {
  if (cu == nullptr) return;
  require(cu[0] == 0, name, "[0] is ", cu[0], ": expected 0");
  for (int32_t r = 0; r < num_reqs; ++r)
    require(cu[r] <= cu[r + 1], name, " decreases from ", cu[r], " to ", cu[r + 1], " at request ", r);
  require(cu[num_reqs] <= size, name, " ends at ", cu[num_reqs], ": there are ", size, " tokens");
}

// Page of position p, a multiple of page_size, of request r (KvIndex). Not for kContiguous.
int32_t page_at(const KvIndex& index, int32_t r, int32_t p) {
  if (index.kind == KvIndexKind::kRequestRows)
    return index.table[index.rows[r] * index.table_stride + p] / index.page_size;
  const int64_t first = index.kind == KvIndexKind::kCsr ? index.indptr[r] : r * index.table_stride;
  return index.table[first + p / index.page_size];
}

// Not for kContiguous.
void check_pages(const KvIndex& index, int32_t r, int32_t seqlen_kv, int64_t num_pages) {
  for (int32_t p = 0; p < seqlen_kv; p += index.page_size) {
    const int32_t page = page_at(index, r, p);
    require(page >= 0 && page < num_pages, "page id ", page, " at position ", p, " of request ", r,
            ": the cache has ", num_pages, " pages");
  }
}

}  // namespace

int32_t length_on_host(const Lengths& lengths, int32_t r) {
  if (lengths.cu != nullptr) return lengths.cu[r + 1] - lengths.cu[r];
  return lengths.per_request != nullptr ? lengths.per_request[r] : lengths.uniform;
}

void check_queries_on_host(std::string_view cu_seqlens_name, const kernels::BatchSource& source,
                           int64_t num_tokens, int max_seqlen_q) {
  check_sums(cu_seqlens_name, source.seqlen_q.cu, source.num_reqs, num_tokens);
  for (int32_t r = 0; r < source.num_reqs; ++r) {
    const int32_t seqlen_q = length_on_host(source.seqlen_q, r);
    require(seqlen_q <= max_seqlen_q, "max_seqlen_q ", max_seqlen_q, ": request ", r, " has ", seqlen_q,
            " queries: expected at least the largest number of a request");
  }
}

void check_appended_on_host(const kernels::BatchSource& source, int max_seqlen_k_new) {
  check_sums("cu_seqlens_k_new", source.seqlen_new.cu, source.num_reqs, std::numeric_limits<int32_t>::max());
  for (int32_t r = 0; r < source.num_reqs; ++r) {
    const int32_t seqlen_new = length_on_host(source.seqlen_new, r);
    require(seqlen_new >= 0 && seqlen_new <= max_seqlen_k_new, "max_seqlen_k_new ", max_seqlen_k_new,
            ": request ", r, " appends ", seqlen_new,
            " keys: expected at least the largest number of a request");
  }
}

int64_t num_kv_tokens_on_host(const AttentionCall& call) {
  int64_t sum = 0;
  for (int32_t r = 0; r < call.source.num_reqs; ++r) {
    const int32_t seqlen_cached = length_on_host(call.source.seqlen_cached, r);
    require(seqlen_cached >= 0, "request ", r, " has ", seqlen_cached, " keys: expected at least 0");
    sum += int64_t{seqlen_cached} + length_on_host(call.source.seqlen_new, r);
  }
  return sum;
}

void check_on_host(const AttentionCall& call) {
  const kernels::BatchSource& source = call.source;
  const KvIndex& index = call.kv.index;
  const int64_t num_pages = call.kv.k.shape[0];
  check_queries_on_host(call.cu_seqlen_q_name, source, call.q.shape[0], call.max_seqlen_q);
  check_sums("cu_seqlens_k", source.seqlen_cached.cu, source.num_reqs, num_pages);
  // For keys that an earlier call appended, only the cumulative lengths are available.
  const int64_t num_new = call.appends() ? call.k_new.shape[0] : std::numeric_limits<int64_t>::max();
  check_sums("cu_seqlens_k_new", source.seqlen_new.cu, source.num_reqs, num_new);
  for (int32_t r = 0; r < source.num_reqs; ++r) {
    const int64_t seqlen_kv =
        int64_t{length_on_host(source.seqlen_cached, r)} + length_on_host(source.seqlen_new, r);
    require(seqlen_kv <= source.locations.capacity, "request ", r, " has ", seqlen_kv,
            " keys: the capacity is ", source.locations.capacity);
    if (source.leftpad != nullptr)
      require(source.leftpad[r] >= 0 && source.leftpad[r] <= seqlen_kv, "cache_leftpad ", source.leftpad[r],
              " of request ", r, ": expected 0 to ", seqlen_kv, ", the number of its keys");
    // Rows without tokens are not read.
    if (source.locations.rows != nullptr && source.locations.row_spacing > 0) {
      const int32_t row = source.locations.rows[r];
      require(row >= 0 && int64_t{row} * source.locations.row_spacing < num_pages, "cache_batch_idx ", row,
              " of request ", r, ": the cache has ",
              (num_pages + source.locations.row_spacing - 1) / source.locations.row_spacing, " rows");
    }
    if (index.kind != KvIndexKind::kContiguous)
      check_pages(index, r, static_cast<int32_t>(seqlen_kv), num_pages);
    else if (index.indptr != nullptr)
      require(index.indptr[r] >= 0 && index.indptr[r] + seqlen_kv <= num_pages, "request ", r, " has ",
              seqlen_kv, " keys starting at ", index.indptr[r], ": there are ", num_pages);
  }
}

}  // namespace attend::python
