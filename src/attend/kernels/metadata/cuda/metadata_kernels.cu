#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/metadata/cuda/metadata_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__device__ int num_pages(int seqlen_kv, int page_size) { return (seqlen_kv + page_size - 1) / page_size; }

// Returns the number of pages of all requests before `request`.
__device__ int pages_before(const PagesParams& params, int request) {
  __shared__ int total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  int mine = 0;
  for (int r = static_cast<int>(threadIdx.x); r < request; r += kThreads)
    mine += num_pages(params.requests.seqlen_kv[r], params.page_size);
  mine = __reduce_add_sync(0xffffffffu, mine);
  if (threadIdx.x % 32 == 0) atomicAdd(&total, mine);
  __syncthreads();
  return total;
}

// One CTA per request.
__global__ void __launch_bounds__(kThreads) pages_kernel(const __grid_constant__ PagesParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const RequestRowsParams& requests = params.requests;
  const int request = static_cast<int>(blockIdx.x);
  const int count = num_pages(requests.seqlen_kv[request], params.page_size);
  int64_t begin = request * params.width;
  if (params.indptr != nullptr) {
    begin = pages_before(params, request);
    if (threadIdx.x == 0) {
      params.indptr[request] = static_cast<int32_t>(begin);
      if (request + 1 == requests.num_reqs) params.indptr[request + 1] = static_cast<int32_t>(begin + count);
    }
  }
  const int32_t* const slots = requests.table + requests.rows[request] * requests.stride;
  for (int j = static_cast<int>(threadIdx.x); j < count; j += kThreads) {
    int32_t slot = slots[j * params.page_size];
    // A slot map is indexed by token slots, so it is applied before the division.
    if (requests.slot_map != nullptr) slot = requests.slot_map[slot];
    params.pages[begin + j] = slot / params.page_size;
  }
}

// One CTA per request.
__global__ void __launch_bounds__(kThreads) new_slots_kernel(const __grid_constant__ NewSlotsParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int request = static_cast<int>(blockIdx.x);
  int32_t* const row = params.table + params.rows[request] * params.stride;
  const int end = params.cu_seqlen_q[request + 1];
  for (int token = params.cu_seqlen_q[request] + static_cast<int>(threadIdx.x); token < end;
       token += kThreads) {
    const int32_t slot = params.slots[token];
    if (slot < 0) continue;
    row[params.positions[token]] = slot;
    if (params.slot_map != nullptr) params.slot_map[slot] = params.swa_slots[token];
  }
}

}  // namespace

void launch_pages(const PagesParams& params, void* stream) {
  if (params.requests.num_reqs == 0) return;
  launch_dependent<PagesParams>(pages_kernel, static_cast<unsigned>(params.requests.num_reqs), kThreads, 0,
                                stream, params, "page index");
}

void launch_new_slots(const NewSlotsParams& params, void* stream) {
  if (params.num_reqs == 0) return;
  launch_dependent<NewSlotsParams>(new_slots_kernel, static_cast<unsigned>(params.num_reqs), kThreads, 0,
                                   stream, params, "request rows");
}

}  // namespace attend::kernels::cuda
