// The functions of metadata.h on a GPU: arrays are in device memory, and the host does not read lengths.
#pragma once

#include "attend/kernels/metadata/metadata.h"

namespace attend::kernels::cuda {

void build_page_table(const RequestRows& requests, int page_size, int width, View<int32_t> page_table,
                      Stream& stream);
void build_csr(const RequestRows& requests, int page_size, View<int32_t> indptr, View<int32_t> indices,
               Stream& stream);
void write_new_slots(const NewSlots& slots, const TensorView& table, Stream& stream);

}  // namespace attend::kernels::cuda
