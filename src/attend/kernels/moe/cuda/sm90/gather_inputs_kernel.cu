// Gathers rows of x, sorted by expert, with their inputs in the order of mxfp4_tiles.cu.
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/common/dequantize.cuh"
#include "attend/kernels/moe/cuda/sm90/expert_tiles_kernel.h"

namespace attend::kernels::cuda::sm90 {
namespace {

constexpr int kGatherThreads = 256;

// Four neighboring lanes have the groups of eight inputs of one word of their quantized values, and exchange
// pairs.
__global__ void __launch_bounds__(kGatherThreads)
    gather_inputs_kernel(const __grid_constant__ GatherInputsParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int row = static_cast<int>(blockIdx.x), pieces = params.in_features / 8;
  const auto* const from = static_cast<const uint4*>(params.from) + int64_t{params.row_token[row]} * pieces;
  auto* const to = static_cast<uint4*>(params.to) + int64_t{row} * pieces;
  for (int first = 0; first < pieces; first += kGatherThreads) {
    const int i = first + static_cast<int>(threadIdx.x), lane = i % 4, word = i / 4 % 2;
    const bool given = i < pieces;  // all or none of eight pieces
    const uint4 x = given ? __ldg(from + i / 8 * 8 + lane * 2 + word) : uint4{};
    uint32_t pairs[4] = {__byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632),
                         __byte_perm(x.y, x.w, 0x5410), __byte_perm(x.y, x.w, 0x7632)};
    exchange_words(pairs, lane);
    if (given) to[i] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
}

}  // namespace

void launch_gather_inputs(const GatherInputsParams& params, void* stream) {
  launch_dependent<GatherInputsParams>(gather_inputs_kernel, dim3(static_cast<unsigned>(params.num_rows)),
                                       kGatherThreads, 0, stream, params, "moe_experts: inputs");
}

}  // namespace attend::kernels::cuda::sm90
