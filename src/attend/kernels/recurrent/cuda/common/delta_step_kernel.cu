// Gated delta rule, one token after another (recurrent.h): decode, and prompts without the chunk form.
//
//   tile        32 rows of a value head's state per CTA (16 if head_dim_k > 128); all tokens of a request
//   warps       2, without shared memory; 8 lanes (16) hold 4 rows
//   registers   125 to 190: a lane has up to 16 elements of 4 rows of S, of k and q, and of the next token
//   bytes       the state read and written once per step; q and k of a token once per 16 rows, from L1
//   bound       the state's traffic if requests have one token; instructions in prompts
//
// A token needs one pass over the old S: p = S k, u = S q, delta = b (v - decay p), out = decay u + (k q)
// delta. Norms of q and k are factors of p, u and delta. Decays per channel multiply k and q in p and u
// instead. The order of all sums depends on head_dim_k only, so
// a token has the same bits in any step.
#include "attend/base/error.h"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_chunks.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_gates.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_kernels.h"
#include "attend/kernels/recurrent/cuda/common/delta_state.cuh"
#include "attend/kernels/recurrent/cuda/common/step_request.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kWarps = 2;
// Decays of a lane's channels.
template <class T, int kLanes, int kQuads, bool kAligned>
__device__ void channel_decays(const RawRow<T, kLanes, kQuads, kAligned>& alpha, const float* dt_bias,
                               int sub, const DeltaParams& params, float rate, float (&decays)[kQuads][4]) {
  alpha.convert(decays);
  RawRow<float, kLanes, kQuads, kAligned> biases;
  biases.load(dt_bias, sub, params.dim_k);
#pragma unroll
  for (int j = 0; j < kQuads; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      decays[j][i] = expf(
          delta_log_decay(__fadd_rn(decays[j][i], biases.quads[j].elements[i]), rate, params.lower_bound));
}

template <class T, int kLanes, int kQuads, bool kAligned, bool kPerChannel>
__global__ void __launch_bounds__(32 * kWarps, kPerChannel ? 1 : 0)
    delta_step_kernel(const __grid_constant__ DeltaParams params) {
  ptx::launch_dependents();
  const int lane = static_cast<int>(threadIdx.x) % 32, sub = lane % kLanes;
  constexpr int kRowsPerCta = kWarps * 32 / kLanes * kDeltaRowsPerLane;
  const int blocks = (params.dim_v + kRowsPerCta - 1) / kRowsPerCta;
  const int head = static_cast<int>(blockIdx.x) / blocks, block = static_cast<int>(blockIdx.x) % blocks;
  const int key_head = head / params.ratio;
  // First row of this lane, and how many it has.
  const int row = block * kRowsPerCta + static_cast<int>(threadIdx.x) / kLanes * kDeltaRowsPerLane;
  const int num_rows = min(kDeltaRowsPerLane, params.dim_v - row);
  const int own_row = row + sub % kDeltaRowsPerLane;  // row whose output this lane computes
  const bool has_own_row = own_row < params.dim_v, writes_out = sub >= 4 && sub < 8;
  const float rate = expf(params.a_log[head]);
  ptx::griddepcontrol_wait();
  const StepRequest request = step_request(params.batch, static_cast<int>(blockIdx.y));
  const auto out_at = [&](int token) {
    return static_cast<T*>(params.out.data) + token * params.out.token_stride +
           head * params.out.head_stride + own_row;
  };
  const auto clear_out = [&](int begin, int end) {
    if (writes_out && has_own_row)
      for (int token = begin; token < end; ++token) *out_at(token) = T(0.0f);
  };
  clear_out(request.end, request.end + request.num_padding);
  if (request.row == 0) return clear_out(request.begin, request.end);
  if (request.begin == request.end) return;
  if (params.chunked && num_delta_chunks(request) > 0) return;

  const auto state_at = [&](int slot) {
    return params.state + ((int64_t{slot} * params.num_v_heads + head) * params.dim_v + row) * params.dim_k;
  };
  StateRows<kLanes, kQuads, kAligned> state;
  if (request.load == 0)
    state.clear();
  else
    state.load(state_at(request.load), num_rows, sub, params.dim_k);

  RawRow<T, kLanes, kQuads, kAligned> raw_q, raw_k, raw_alpha;
  T raw_v = T(0.0f);
  const auto load_token = [&](int token) {
    const auto head_row = [&](const auto& rows, int of) {
      return static_cast<const T*>(rows.data) + token * rows.token_stride + of * rows.head_stride;
    };
    raw_q.load(head_row(params.q, key_head), sub, params.dim_k);
    raw_k.load(head_row(params.k, key_head), sub, params.dim_k);
    if (has_own_row) raw_v = head_row(params.v, head)[own_row];
    if constexpr (kPerChannel) raw_alpha.load(head_row(params.alpha, head), sub, params.dim_k);
  };
  load_token(request.begin);
  DeltaGates gates{};  // of token `token` / 32 * 32 + lane, counted from the first one
  int save_slot = 0;
  for (int token = request.begin; token < request.end; ++token) {
    const int idx = (token - request.begin) % 32;
    if (idx == 0) {
      const int own = token + lane;
      const bool exists = own < request.end;
      gates = exists ? delta_gates<T>(params, own, key_head, head, rate) : DeltaGates{};
      save_slot = exists && params.batch.save_slots != nullptr ? params.batch.save_slots[own] : 0;
    }
    const float decay = expf(__shfl_sync(kAllDeltaLanes, gates.log_decay, idx));
    const float beta = __shfl_sync(kAllDeltaLanes, gates.beta, idx);
    const int saved = __shfl_sync(kAllDeltaLanes, save_slot, idx);
    float q[kQuads][4], k[kQuads][4];
    raw_q.convert(q);
    raw_k.convert(k);
    float decays[kQuads][4];
    if constexpr (kPerChannel)
      channel_decays(raw_alpha, params.dt_bias + int64_t{head} * params.dim_k, sub, params, rate, decays);
    const float v = static_cast<float>(raw_v);
    if (token + 1 < request.end) load_token(token + 1);

    const float value = state.template step<kPerChannel>(q, k, decays, v, decay, beta, params.q_scale, sub);
    if (writes_out && has_own_row) *out_at(token) = T(value);
    if (saved != 0) state.store(state_at(saved), num_rows, sub, params.dim_k);
  }
  state.store(state_at(request.row), num_rows, sub, params.dim_k);
}

template <class T, int kLanes, int kQuads, bool kAligned>
void launch(const DeltaParams& params, void* stream) {
  constexpr int kRowsPerCta = kWarps * 32 / kLanes * kDeltaRowsPerLane;
  const int blocks = (params.dim_v + kRowsPerCta - 1) / kRowsPerCta;
  void (*kernel)(DeltaParams) = delta_step_kernel<T, kLanes, kQuads, kAligned, false>;
  if (params.decays_per_channel) kernel = delta_step_kernel<T, kLanes, kQuads, kAligned, true>;
  launch_dependent<DeltaParams>(
      kernel,
      dim3(static_cast<unsigned>(params.num_v_heads * blocks), static_cast<unsigned>(params.batch.num_reqs)),
      32 * kWarps, 0, stream, params, "gated_delta_rule");
}

template <class T>
void launch_for_dim(const DeltaParams& params, void* stream) {
  if (!params.aligned) return launch<T, 16, 4, false>(params, stream);
  if (params.dim_k <= 64) return launch<T, 8, 2, true>(params, stream);
  if (params.dim_k <= 96) return launch<T, 8, 3, true>(params, stream);
  if (params.dim_k <= 128) return launch<T, 8, 4, true>(params, stream);
  launch<T, 16, 4, true>(params, stream);
}

}  // namespace

void launch_delta_step(const DeltaParams& params, void* stream) {
  if (params.batch.num_reqs == 0) return;
  if (params.element == Element::kBF16) return launch_for_dim<__nv_bfloat16>(params, stream);
  if (params.element == Element::kF16) return launch_for_dim<__half>(params, stream);
  launch_for_dim<float>(params, stream);
}

}  // namespace attend::kernels::cuda
