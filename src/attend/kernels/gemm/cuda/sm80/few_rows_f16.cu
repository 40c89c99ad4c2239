#include "attend/kernels/gemm/cuda/sm80/few_rows_kernel.cuh"

namespace attend::kernels::cuda {

void launch_few_rows_f16(const FewRowsParams& params, void* stream) { launch_rows<__half>(params, stream); }

}  // namespace attend::kernels::cuda
