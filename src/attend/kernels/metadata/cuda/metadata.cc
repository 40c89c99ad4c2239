#include "attend/kernels/metadata/cuda/metadata.h"

#include "attend/base/error.h"
#include "attend/kernels/metadata/cuda/metadata_kernels.h"

namespace attend::kernels::cuda {
namespace {

RequestRowsParams make_params(const RequestRows& requests) {
  return {.table = requests.table,
          .stride = requests.stride,
          .rows = requests.rows.data(),
          .seqlen_kv = requests.seqlen_kv.data(),
          .slot_map = requests.slot_map,
          .num_reqs = static_cast<int32_t>(requests.rows.size())};
}

}  // namespace

void build_page_table(const RequestRows& requests, int page_size, int width, View<int32_t> page_table,
                      Stream& stream) {
  require(page_table.size() >= requests.rows.size() * static_cast<size_t>(width), "page table of ",
          page_table.size(), " entries: ", requests.rows.size(), " requests need ", width, " each");
  launch_pages({.requests = make_params(requests),
                .page_size = page_size,
                .pages = page_table.data(),
                .width = width,
                .indptr = nullptr},
               stream.handle);
}

void build_csr(const RequestRows& requests, int page_size, View<int32_t> indptr, View<int32_t> indices,
               Stream& stream) {
  require(indptr.size() == requests.rows.size() + 1, "indptr of ", indptr.size(),
          " entries: ", requests.rows.size(), " requests need ", requests.rows.size() + 1);
  launch_pages({.requests = make_params(requests),
                .page_size = page_size,
                .pages = indices.data(),
                .width = 0,
                .indptr = indptr.data()},
               stream.handle);
}

void write_new_slots(const NewSlots& slots, const TensorView& table, Stream& stream) {
  launch_new_slots({.table = table.as<int32_t>(),
                    .stride = table.strides[0],
                    .rows = slots.rows.data(),
                    .cu_seqlen_q = slots.cu_seqlen_q.data(),
                    .positions = slots.positions.data(),
                    .slots = slots.slots.data(),
                    .swa_slots = slots.swa_slots.data(),
                    .slot_map = slots.slot_map,
                    .num_reqs = static_cast<int32_t>(slots.rows.size())},
                   stream.handle);
}

}  // namespace attend::kernels::cuda
