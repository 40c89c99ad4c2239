// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/common/refuse_gpu.h"
#include "attend/kernels/metadata/cuda/metadata.h"

namespace attend::kernels::cuda {

void build_page_table(const RequestRows&, int, int, View<int32_t>, Stream&) { refuse("build_page_table"); }
void build_csr(const RequestRows&, int, View<int32_t>, View<int32_t>, Stream&) { refuse("build_csr"); }
void write_new_slots(const NewSlots&, const TensorView&, Stream&) { refuse("write_new_slots"); }

}  // namespace attend::kernels::cuda
