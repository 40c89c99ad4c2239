// Selective scan, one token after another (recurrent.h): decode, and prompts without the chunk form.
//
//   tile        8 rows of a head's state per warp; all tokens of a request
//   warps       4, without shared memory; a lane has 2, 4 or 8 adjacent elements of 8 rows
//   registers   state and inputs of one or two tokens of a lane: 61 to 181
//   bytes       the state read and written once per step; b and c of a token once per 8 rows, from L1
//   bound       the state's traffic if requests have one token; instructions in prompts
//
// The order of all sums depends on state_dim only, so a token has the same bits in any step. State dims
// without an instance, or rows of b and c that are not aligned, use a second kernel: a warp per row of the
// state, which remains in memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/recurrent/cuda/common/scan_step.cuh"
#include "attend/kernels/recurrent/cuda/common/step_request.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kRows = 8;
constexpr unsigned kAllLanes = 0xffffffffu;

// Elements of a lane, loaded with accesses of up to 16 bytes.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) LaneElements {
  T values[kCount];
};

// Sums each of 8 values over the warp. Lane l returns the sum of value l / 4.
__device__ float sum_to_lanes(const float (&values)[kRows], int lane) {
  float four[4], two[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool high = (lane & 16) != 0;
    four[i] =
        (high ? values[i + 4] : values[i]) + __shfl_xor_sync(kAllLanes, high ? values[i] : values[i + 4], 16);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool high = (lane & 8) != 0;
    two[i] = (high ? four[i + 2] : four[i]) + __shfl_xor_sync(kAllLanes, high ? four[i] : four[i + 2], 8);
  }
  const bool high = (lane & 4) != 0;
  float sum = (high ? two[1] : two[0]) + __shfl_xor_sync(kAllLanes, high ? two[0] : two[1], 4);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  return sum + __shfl_xor_sync(kAllLanes, sum, 1);
}

// A lane's inputs of one token.
template <class T, int kColumns>
struct TokenInputs {
  LaneElements<T, kColumns> b, c;
  T x;
};

// kInFlight: tokens whose inputs are loaded before they are used.
template <class T, int kColumns, int kInFlight>
class ScanWarp {
 public:
  __device__ ScanWarp(const ScanParams& params, int head, int first_row, int lane)
      : params_(params),
        head_(head),
        lane_(lane),
        num_rows_(min(kRows, params.head_dim - first_row)),
        own_row_(first_row + lane / 4),
        first_(static_cast<int64_t>(first_row) * params.state_dim + lane * kColumns) {}

  __device__ bool has_own_row() const { return own_row_ < params_.head_dim; }

  __device__ void clear_out(int begin, int end) const {
    if (lane_ % 4 != 0 || !has_own_row()) return;
    for (int token = begin; token < end; ++token) *out(token) = T(0.0f);
  }

  __device__ void run(const StepRequest& request) {
    Inputs next[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) load(request.begin + u, request.end, next[u]);
    load_state(request.load);
    const float rate = expf(params_.a_log[head_]), d = params_.d[head_];
    float steps = 0.0f, decays = 1.0f;  // of token base + lane, for each 32 tokens
    int saves = 0;
    for (int token = request.begin; token < request.end; token += kInFlight) {
      const int first = (token - request.begin) % 32;
      if (first == 0 && token + lane_ < request.end) {
        steps = scan_step(params_, load_dt<T>(params_, token + lane_, head_), head_);
        decays = expf(-rate * steps);
        saves = params_.batch.save_slots == nullptr ? 0 : params_.batch.save_slots[token + lane_];
      }
      Inputs inputs[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        inputs[u] = next[u];
        load(token + kInFlight + u, request.end, next[u]);
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        if (token + u >= request.end) break;
        step(inputs[u], token + u, __shfl_sync(kAllLanes, steps, first + u),
             __shfl_sync(kAllLanes, decays, first + u), d);
        if (const int slot = __shfl_sync(kAllLanes, saves, first + u); slot != 0) store_state(slot);
      }
    }
    store_state(request.row);
  }

 private:
  using Inputs = TokenInputs<T, kColumns>;

  __device__ T* out(int64_t token) const {
    return static_cast<T*>(params_.out.data) + token * params_.out.token_stride +
           head_ * params_.out.head_stride + own_row_;
  }
  __device__ void load(int64_t token, int end, Inputs& inputs) const {
    if (token >= end) return;
    const auto row = [&](const TokenRows& rows, int index) {
      return static_cast<const T*>(rows.data) + token * rows.token_stride + index * rows.head_stride;
    };
    const int group = head_ / params_.heads_per_group;
    inputs.b = reinterpret_cast<const LaneElements<T, kColumns>*>(row(params_.b, group))[lane_];
    inputs.c = reinterpret_cast<const LaneElements<T, kColumns>*>(row(params_.c, group))[lane_];
    inputs.x = has_own_row() ? row(params_.x, head_)[own_row_] : T(0.0f);
  }

  using StateElements = LaneElements<float, kColumns>;
  __device__ float* state(int slot, int r) const {
    return head_state(params_, slot, head_) + first_ + static_cast<int64_t>(r) * params_.state_dim;
  }
  __device__ void load_state(int slot) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      state_[r] = {};
      if (slot != 0 && r < num_rows_) state_[r] = *reinterpret_cast<const StateElements*>(state(slot, r));
    }
  }
  __device__ void store_state(int slot) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (r < num_rows_) *reinterpret_cast<StateElements*>(state(slot, r)) = state_[r];
  }

  __device__ void step(const Inputs& inputs, int token, float step, float decay, float d) {
    const float x = static_cast<float>(inputs.x), own_input = __fmul_rn(step, x);
    float sums[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float input = __shfl_sync(kAllLanes, own_input, 4 * r);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        float& h = state_[r].values[i];
        h = fmaf(input, static_cast<float>(inputs.b.values[i]), __fmul_rn(decay, h));
        sums[r] = fmaf(h, static_cast<float>(inputs.c.values[i]), sums[r]);
      }
    }
    const float sum = sum_to_lanes(sums, lane_);
    if (lane_ % 4 == 0 && has_own_row()) *out(token) = T(fmaf(d, x, sum));
  }

  const ScanParams& params_;
  const int head_, lane_, num_rows_;
  const int own_row_;  // row of this lane's x and output
  const int64_t first_;
  StateElements state_[kRows];
};

// Calls scan(request) for the request of blockIdx.y if this kernel scans it, and clear(begin, end) for tokens
// of padding.
template <class Scan, class Clear>
__device__ void for_request(const ScanParams& params, const Scan& scan, const Clear& clear) {
  const StepRequest request = step_request(params.batch, static_cast<int>(blockIdx.y));
  clear(request.end, request.end + request.num_padding);
  if (request.row == 0) return clear(request.begin, request.end);
  if (request.seqlen_q() == 0 || request.seqlen_q() > params.max_tokens) return;
  scan(request);
}

template <class T, int kColumns, int kInFlight>
__global__ void __launch_bounds__(32 * kWarps) scan_step_kernel(const __grid_constant__ ScanParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int task = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int blocks = (params.head_dim + kRows - 1) / kRows, head = task / blocks;
  if (head >= params.num_heads) return;
  ScanWarp<T, kColumns, kInFlight> warp(params, head, task % blocks * kRows, lane);
  for_request(
      params, [&](const StepRequest& request) { warp.run(request); },
      [&](int begin, int end) { warp.clear_out(begin, end); });
}

// Any state_dim and alignment. A warp has one row of a head's state.
template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    scan_step_any_kernel(const __grid_constant__ ScanParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int task = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int head = task / params.head_dim, row = task % params.head_dim;
  if (head >= params.num_heads) return;
  const int group = head / params.heads_per_group;
  const auto load = [&](const TokenRows& rows, int64_t token, int index, int i) {
    return static_cast<float>(
        static_cast<const T*>(rows.data)[token * rows.token_stride + index * rows.head_stride + i]);
  };
  const auto store_out = [&](int64_t token, float value) {
    if (lane == 0)
      static_cast<T*>(
          params.out.data)[token * params.out.token_stride + head * params.out.head_stride + row] = T(value);
  };
  const auto state = [&](int slot) {
    return head_state(params, slot, head) + static_cast<int64_t>(row) * params.state_dim;
  };
  const auto scan = [&](const StepRequest& request) {
    const float rate = expf(params.a_log[head]), d = params.d[head];
    float* const own = state(request.row);
    for (int i = lane; i < params.state_dim; i += 32)
      own[i] = request.load == 0 ? 0.0f : state(request.load)[i];
    for (int token = request.begin; token < request.end; ++token) {
      const float step = scan_step(params, load_dt<T>(params, token, head), head), decay = expf(-rate * step);
      const float x = load(params.x, token, head, row), input = __fmul_rn(step, x);
      const int slot = params.batch.save_slots == nullptr ? 0 : params.batch.save_slots[token];
      float sum = 0.0f;
      for (int i = lane; i < params.state_dim; i += 32) {
        const float h = fmaf(input, load(params.b, token, group, i), __fmul_rn(decay, own[i]));
        own[i] = h;
        if (slot != 0) state(slot)[i] = h;
        sum = fmaf(h, load(params.c, token, group, i), sum);
      }
      for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
      store_out(token, fmaf(d, x, sum));
    }
  };
  for_request(params, scan, [&](int begin, int end) {
    for (int token = begin; token < end; ++token) store_out(token, 0.0f);
  });
}

void launch(void (*kernel)(ScanParams), const ScanParams& params, int rows_per_warp, void* stream) {
  const int tasks = params.num_heads * ((params.head_dim + rows_per_warp - 1) / rows_per_warp);
  launch_dependent<ScanParams>(kernel,
                               dim3(static_cast<unsigned>((tasks + kWarps - 1) / kWarps),
                                    static_cast<unsigned>(params.batch.num_reqs)),
                               32 * kWarps, 0, stream, params, "selective_scan");
}

template <class T, int kColumns>
void launch_columns(const ScanParams& params, void* stream) {
  // With at most one token per request, fewer registers leave room for more loads of states.
  if constexpr (kColumns < 8)
    if (params.batch.num_tokens <= params.batch.num_reqs)
      return launch(scan_step_kernel<T, kColumns, 1>, params, kRows, stream);
  launch(scan_step_kernel<T, kColumns, 2>, params, kRows, stream);
}

template <class T>
void launch_typed(const ScanParams& params, void* stream) {
  if (params.aligned && params.state_dim == 64) return launch_columns<T, 2>(params, stream);
  if (params.aligned && params.state_dim == 128) return launch_columns<T, 4>(params, stream);
  if (params.aligned && params.state_dim == 256) return launch_columns<T, 8>(params, stream);
  launch(scan_step_any_kernel<T>, params, 1, stream);
}

}  // namespace

void launch_scan_step(const ScanParams& params, void* stream) {
  if (params.batch.num_reqs == 0) return;
  if (params.element == Element::kBF16) return launch_typed<__nv_bfloat16>(params, stream);
  if (params.element == Element::kF16) return launch_typed<__half>(params, stream);
  launch_typed<float>(params, stream);
}

}  // namespace attend::kernels::cuda
