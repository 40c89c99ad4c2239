#include "attend/backends/batch_index.h"

#include "attend/base/error.h"
#include "attend/base/math.h"

namespace attend {
namespace {

using kernels::KvIndexKind;

// Returns the number of table entries that the index of a spec needs.
size_t table_entries(const BackendSpec& spec, const BackendConfig& config) {
  const auto max_reqs = static_cast<size_t>(config.limits.max_reqs);
  switch (spec.index) {
    case KvIndexKind::kPageTable:
      return max_reqs * static_cast<size_t>(ceil_div(config.model.max_context_len, config.page_size));
    case KvIndexKind::kCsr:  // the last page of every request may be partial
      return static_cast<size_t>(ceil_div(config.limits.max_kv_tokens, int64_t{config.page_size})) + max_reqs;
    case KvIndexKind::kRequestRows:
    case KvIndexKind::kContiguous:
      return 0;
  }
  return 0;
}

size_t indptr_entries(const BackendSpec& spec, const BackendConfig& config) {
  return spec.index == KvIndexKind::kCsr ? static_cast<size_t>(config.limits.max_reqs) + 1 : 0;
}

Tensor allocate_entries(size_t count, Device device) {
  return Tensor::empty({static_cast<int64_t>(count)}, DType::kI32, device);
}

}  // namespace

BatchIndex::BatchIndex(const BackendSpec& spec, const BackendConfig& config)
    : page_size_(config.page_size),
      max_context_len_(config.model.max_context_len),
      table_(allocate_entries(table_entries(spec, config), config.device)),
      indptr_(allocate_entries(indptr_entries(spec, config), config.device)),
      index_{.kind = spec.index, .page_size = config.page_size} {}

size_t BatchIndex::num_bytes(const BackendSpec& spec, const BackendConfig& config) {
  return sizeof(int32_t) * (table_entries(spec, config) + indptr_entries(spec, config));
}

void BatchIndex::build(const kernels::RequestRows& requests, Stream& stream) {
  switch (index_.kind) {
    case KvIndexKind::kRequestRows:
      index_.table = requests.table;
      index_.table_stride = requests.stride;
      index_.rows = requests.rows.data();
      index_.slot_map = requests.slot_map;
      return;
    case KvIndexKind::kPageTable: {
      const int width = ceil_div(max_context_len_, page_size_);
      kernels::build_page_table(requests, page_size_, width, table_.span<int32_t>(), stream);
      index_.table = table_.as<int32_t>();
      index_.table_stride = width;
      return;
    }
    case KvIndexKind::kCsr:
      kernels::build_csr(requests, page_size_, indptr_.span<int32_t>().first(requests.rows.size() + 1),
                         table_.span<int32_t>(), stream);
      index_.table = table_.as<int32_t>();
      index_.indptr = indptr_.as<int32_t>();
      return;
    case KvIndexKind::kContiguous:
      fail(ErrorCode::kInternal, "a paged backend with a contiguous index");
  }
}

}  // namespace attend
