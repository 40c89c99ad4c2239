#include "gathered_call.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "arguments.h"
#include "attend/kernels/metadata/page_of.h"
#include "check_on_host.h"
#include "workspaces.h"

namespace attend::python {
namespace {

// A range of a request's keys.
struct KeyRange {
  int32_t begin = 0, end = 0;
};

KeyRange keys_of(const AttentionCall& call, int32_t r) {
  const int32_t end =
      length_on_host(call.source.seqlen_cached, r) + length_on_host(call.source.seqlen_new, r);
  const int32_t begin = call.leftpad.empty() ? 0 : call.leftpad[static_cast<size_t>(r)];
  require(begin >= 0 && begin <= end, "cache_leftpad ", begin, " of request ", r, ": expected 0 to ", end,
          ", the number of its keys");
  return {begin, end};
}

// Where the elements of a head of position p begin.
const std::byte* row_at(const AttentionCall& call, const TensorView& cache, int32_t r, int32_t p,
                        int64_t head) {
  int64_t page = 0, offset = 0;
  if (call.needs_first_key()) {
    const kernels::KeyPlaces& places = call.source.places;
    page = int64_t{places.rows == nullptr ? r : places.rows[r]} * places.row_spacing + p;
  } else {
    page = kernels::page_of(call.kv.index, r, p);
    offset = p % call.kv.index.page_size;
  }
  const int64_t element = page * cache.strides[0] + offset * cache.strides[1] + head * cache.strides[2];
  return static_cast<const std::byte*>(cache.data) + element * static_cast<int64_t>(size_of(cache.dtype));
}

// Keys of all requests, [total, 1, num_heads, dims of all `caches` side by side]: heads [first_head, ...).
Tensor gathered(const AttentionCall& call, const std::vector<KeyRange>& keys, int64_t total,
                std::initializer_list<const TensorView*> caches, int64_t first_head, int64_t num_heads) {
  int64_t dim = 0;
  for (const TensorView* cache : caches) dim += cache->shape[3];
  Tensor all = Tensor::empty({std::max<int64_t>(total, 1), 1, num_heads, dim}, (*caches.begin())->dtype);
  auto* to = static_cast<std::byte*>(all.view().data);
  for (int32_t r = 0; r < call.source.num_reqs; ++r)
    for (int32_t p = keys[static_cast<size_t>(r)].begin; p < keys[static_cast<size_t>(r)].end; ++p)
      for (int64_t head = first_head; head < first_head + num_heads; ++head)
        for (const TensorView* cache : caches) {
          const size_t bytes = static_cast<size_t>(cache->shape[3]) * size_of(cache->dtype);
          std::memcpy(to, row_at(call, *cache, r, p, head), bytes);
          to += bytes;
        }
  return all;
}

// The arrays of a batch over gathered keys. A request with fewer queries than rows is two: the second, of its
// other rows, sees no key.
struct GatheredBatch {
  std::vector<int32_t> cu_seqlens_q{0}, seqlens_kv, first_keys;

  void add(int32_t num_rows, int32_t num_keys, int32_t first_key) {
    cu_seqlens_q.push_back(cu_seqlens_q.back() + num_rows);
    seqlens_kv.push_back(num_keys);
    first_keys.push_back(first_key);
  }
};

GatheredBatch batch_of(const AttentionCall& call, const std::vector<KeyRange>& keys) {
  GatheredBatch batch;
  int32_t first_key = 0;
  for (int32_t r = 0; r < call.source.num_reqs; ++r) {
    const int32_t num_rows = length_on_host(call.source.seqlen_q, r);
    const int32_t num_keys = keys[static_cast<size_t>(r)].end - keys[static_cast<size_t>(r)].begin;
    const int32_t used = call.seqused_q.empty() ? num_rows : call.seqused_q[static_cast<size_t>(r)];
    require(used >= 0 && used <= num_rows, "seqused_q ", used, " of request ", r, ": expected 0 to ",
            num_rows, ", the number of its queries");
    batch.add(used, num_keys, first_key);
    if (!call.seqused_q.empty()) batch.add(num_rows - used, 0, first_key);
    first_key += num_keys;
  }
  batch.first_keys.push_back(first_key);
  return batch;
}

}  // namespace

void run_gathered(const AttentionCall& given, Stream stream) {
  AttentionCall call = given;
  check_on_host(call);
  if (call.appends())
    Workspace(limits_of(call, stream.device), call.num_new_tokens(), stream.device).place_keys(call, stream);
  if (call.rope_q.has_value()) kernels::apply_rope_rows(*call.rope_q, stream);
  std::vector<KeyRange> keys;
  int64_t total = 0;
  for (int32_t r = 0; r < call.source.num_reqs; ++r) {
    keys.push_back(keys_of(call, r));
    total += keys.back().end - keys.back().begin;
  }
  require(total < int64_t{1} << 31, "keys of all requests: ", total, ": expected below 2^31");
  const GatheredBatch batch = batch_of(call, keys);

  AttentionCall over = call;
  over.source = {.num_reqs = static_cast<int32_t>(batch.seqlens_kv.size()),
                 .seqlen_q = {.cu = batch.cu_seqlens_q.data()},
                 .seqlen_cached = {.per_request = batch.seqlens_kv.data()},
                 .places = {.capacity = std::numeric_limits<int32_t>::max()}};
  over.cu_seqlen_q = batch.cu_seqlens_q;
  over.seqlen_kv = batch.seqlens_kv;
  over.kv.index = {.kind = kernels::KvIndexKind::kContiguous, .indptr = batch.first_keys.data()};
  over.k_new = over.v_new = {};
  over.rope_q = over.rope_k_new = std::nullopt;
  over.leftpad = over.seqused_q = {};
  over.qv = {};
  const int64_t num_kv_heads = call.kv.k.shape[2];
  if (call.qv.empty()) {
    const Tensor k = gathered(call, keys, total, {&call.kv.k}, 0, num_kv_heads),
                 v = gathered(call, keys, total, {&call.kv.v}, 0, num_kv_heads);
    over.kv.k = k.view();
    over.kv.v = v.view();
    return run(over, workspaces(), stream);
  }
  // Each K/V head's rows are latent rows: values, then what is rotated.
  const int64_t group = call.q.shape[1] / num_kv_heads;
  for (int64_t head = 0; head < num_kv_heads; ++head) {
    const Tensor latent = gathered(call, keys, total, {&call.kv.v, &call.kv.k}, head, 1);
    const int64_t begin = head * group, end = begin + group;
    AttentionCall one = over;
    one.q = call.qv.slice(1, begin, end);
    one.q_rope = call.q.slice(1, begin, end);
    one.out = call.out.slice(1, begin, end);
    if (!call.lse.empty()) one.lse = call.lse.slice(1, begin, end);
    if (!call.score.sinks.empty())
      one.score.sinks = call.score.sinks.subspan(static_cast<size_t>(begin), static_cast<size_t>(group));
    one.kv.k = latent.view().reshape({latent.shape(0), 1, latent.shape(3)});
    one.kv.v = {};
    run(one, workspaces(), stream);
  }
}

}  // namespace attend::python
