#include "attend/kernels/metadata/metadata.h"

#include "attend/base/error.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/metadata/check_page_size.h"
#include "attend/kernels/metadata/cuda/metadata.h"

namespace attend::kernels {
namespace {

void check_requests(const RequestRows& requests, std::string_view caller) {
  require(requests.rows.size() == requests.seqlen_kv.size(), "rows of ", requests.rows.size(),
          " requests: ", caller, " has seqlen_kv of ", requests.seqlen_kv.size());
  const int64_t longest = requests.max_seqlen_kv > 0 ? requests.max_seqlen_kv : requests.stride;
  for (size_t r = 0; r < requests.rows.size(); ++r) {
    const int32_t seqlen_kv = requests.seqlen_kv[r];
    require(seqlen_kv >= 0 && seqlen_kv <= longest, "seqlen_kv ", seqlen_kv, " of request ", r, ": ", caller,
            " supports 0 to ", longest, ", the length of a row");
  }
}

// Writes the page ids of request r to `pages`. A slot map is indexed by token slots, so it is applied before
// the division.
void write_pages(const RequestRows& requests, size_t r, int page_size, int32_t* pages) {
  const int32_t* slots = requests.table + requests.rows[r] * requests.stride;
  for (int32_t p = 0; p < requests.seqlen_kv[r]; p += page_size) {
    const int32_t slot = requests.slot_map != nullptr ? requests.slot_map[slots[p]] : slots[p];
    *pages++ = slot / page_size;
  }
}

}  // namespace

void build_page_table(const RequestRows& requests, int page_size, int width, View<int32_t> page_table) {
  constexpr std::string_view kCaller = "build_page_table";
  check_page_size(page_size, kCaller);
  check_requests(requests, kCaller);
  const size_t num_reqs = requests.rows.size();
  for (size_t r = 0; r < num_reqs; ++r)
    require(ceil_div(requests.seqlen_kv[r], page_size) <= width, "width ", width, ": ", kCaller, " needs ",
            ceil_div(requests.seqlen_kv[r], page_size), " pages for request ", r);
  require(page_table.size() >= num_reqs * static_cast<size_t>(width), "page_table of ", page_table.size(),
          " entries: ", kCaller, " needs ", num_reqs, " x ", width);
  for (size_t r = 0; r < num_reqs; ++r)
    write_pages(requests, r, page_size, page_table.data() + r * static_cast<size_t>(width));
}

void build_csr(const RequestRows& requests, int page_size, View<int32_t> indptr, View<int32_t> indices) {
  constexpr std::string_view kCaller = "build_csr";
  check_page_size(page_size, kCaller);
  check_requests(requests, kCaller);
  const size_t num_reqs = requests.rows.size();
  require(indptr.size() == num_reqs + 1, "indptr of ", indptr.size(), " entries: ", kCaller, " needs ",
          num_reqs + 1);
  int64_t num_pages = 0;
  for (int32_t seqlen_kv : requests.seqlen_kv) num_pages += ceil_div(seqlen_kv, page_size);
  require(num_pages <= static_cast<int64_t>(indices.size()), "indices of ", indices.size(),
          " entries: ", kCaller, " needs ", num_pages);
  indptr[0] = 0;
  for (size_t r = 0; r < num_reqs; ++r) {
    write_pages(requests, r, page_size, indices.data() + indptr[r]);
    indptr[r + 1] = indptr[r] + ceil_div(requests.seqlen_kv[r], page_size);
  }
}

void build_page_table(const RequestRows& requests, int page_size, int width, View<int32_t> page_table,
                      Stream& stream) {
  if (const OnGpu gpu(stream); gpu)
    return cuda::build_page_table(requests, page_size, width, page_table, stream);
  build_page_table(requests, page_size, width, page_table);
}

void build_csr(const RequestRows& requests, int page_size, View<int32_t> indptr, View<int32_t> indices,
               Stream& stream) {
  if (const OnGpu gpu(stream); gpu) return cuda::build_csr(requests, page_size, indptr, indices, stream);
  build_csr(requests, page_size, indptr, indices);
}

void write_new_slots(const NewSlots& slots, const TensorView& table, Stream& stream) {
  const OnGpu gpu(stream);
  if (!gpu)
    fail(ErrorCode::kUnsupported, "write_new_slots on ", stream.device,
         ": only a GPU has a copy of the rows");
  require(slots.cu_seqlen_q.size() == slots.rows.size() + 1 && slots.positions.size() == slots.slots.size(),
          "write_new_slots: for ", slots.rows.size(), " requests: cu_seqlen_q of ", slots.cu_seqlen_q.size(),
          ", ", slots.positions.size(), " positions, ", slots.slots.size(), " slots");
  require(slots.swa_slots.size() == (slots.slot_map != nullptr ? slots.slots.size() : 0),
          "write_new_slots: ", slots.swa_slots.size(), " swa_slots for ", slots.slots.size(), " slots");
  cuda::write_new_slots(slots, table, stream);
}

void translate_slots(const int32_t* slot_map, View<const int32_t> slots, View<int32_t> translated) {
  require(translated.size() == slots.size(), "translated of ", translated.size(),
          " slots: translate_slots has ", slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    require(slots[i] >= -1, "slot ", slots[i], " at ", i, ": translate_slots needs a token slot or -1");
    translated[i] = slots[i] < 0 ? -1 : slot_map[slots[i]];
  }
}

}  // namespace attend::kernels
