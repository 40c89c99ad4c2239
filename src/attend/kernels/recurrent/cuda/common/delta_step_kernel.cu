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
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attend/base/error.h"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_chunks.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_gates.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_kernels.h"
#include "attend/kernels/recurrent/cuda/common/step_request.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kWarps = 2;
constexpr int kRowsPerLane = 4;
constexpr unsigned kAllLanes = 0xffffffffu;

// Four elements of a row, as they are in memory.
template <class T>
struct Quad {
  T elements[4];
};

// A lane's elements of a key or query of the next token: quads `sub`, `sub` + kLanes, ... of the head.
template <class T, int kLanes, int kQuads, bool kAligned>
struct RawRow {
  Quad<T> quads[kQuads];

  __device__ void load(const T* row, int sub, int dim) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      const int first = (j * kLanes + sub) * 4;
      if constexpr (!kAligned) {
#pragma unroll
        for (int i = 0; i < 4; ++i) quads[j].elements[i] = first + i < dim ? row[first + i] : T(0.0f);
      } else if constexpr (sizeof(T) == 4) {
        *reinterpret_cast<uint4*>(&quads[j]) =
            first < dim ? *reinterpret_cast<const uint4*>(row + first) : uint4{};
      } else {
        *reinterpret_cast<uint2*>(&quads[j]) =
            first < dim ? *reinterpret_cast<const uint2*>(row + first) : uint2{};
      }
    }
  }
  __device__ void convert(float (&values)[kQuads][4]) const {
#pragma unroll
    for (int j = 0; j < kQuads; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) values[j][i] = static_cast<float>(quads[j].elements[i]);
  }
};

// Sum over the lanes of a row, the same in all of them.
template <int kLanes>
__device__ float row_sum(float value) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

// Sums p and u over the lanes of a row. Lane i of each 8 returns p[i] if i < 4, otherwise u[i - 4].
template <int kLanes>
__device__ float sum_to_lanes(const float (&p)[kRowsPerLane], const float (&u)[kRowsPerLane], int sub) {
  const bool high = (sub & 4) != 0, odd_pair = (sub & 2) != 0, odd = (sub & 1) != 0;
  float four[4], two[2];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    four[i] = (high ? u[i] : p[i]) + __shfl_xor_sync(kAllLanes, high ? p[i] : u[i], 4);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    two[i] =
        (odd_pair ? four[i + 2] : four[i]) + __shfl_xor_sync(kAllLanes, odd_pair ? four[i] : four[i + 2], 2);
  float sum = (odd ? two[1] : two[0]) + __shfl_xor_sync(kAllLanes, odd ? two[0] : two[1], 1);
  if constexpr (kLanes == 16) sum += __shfl_xor_sync(kAllLanes, sum, 8);
  return sum;
}

// Rows of the state in the registers of a lane.
template <int kLanes, int kQuads, bool kAligned>
struct StateRows {
  float rows[kRowsPerLane][kQuads][4];

  __device__ void clear() {
#pragma unroll
    for (auto& row : rows)
#pragma unroll
      for (auto& quad : row)
#pragma unroll
        for (float& x : quad) x = 0.0f;
  }
  // `head`: the first row of this lane.
  __device__ void load(const float* head, int num_rows, int sub, int dim) {
    clear();
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r)
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        const int first = (j * kLanes + sub) * 4;
        if (r >= num_rows || first >= dim) continue;
        const float* const from = head + int64_t{r} * dim + first;
        if constexpr (kAligned) {
          const float4 quad = __ldcg(reinterpret_cast<const float4*>(from));
          rows[r][j][0] = quad.x, rows[r][j][1] = quad.y, rows[r][j][2] = quad.z, rows[r][j][3] = quad.w;
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (first + i < dim) rows[r][j][i] = __ldcg(from + i);
        }
      }
  }
  __device__ void store(float* head, int num_rows, int sub, int dim) const {
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r)
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        const int first = (j * kLanes + sub) * 4;
        if (r >= num_rows || first >= dim) continue;
        float* const to = head + int64_t{r} * dim + first;
        const float* const quad = rows[r][j];
        if constexpr (kAligned) {
          __stcg(reinterpret_cast<float4*>(to), make_float4(quad[0], quad[1], quad[2], quad[3]));
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (first + i < dim) __stcg(to + i, quad[i]);
        }
      }
  }
};

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
  constexpr int kRowsPerCta = kWarps * 32 / kLanes * kRowsPerLane;
  const int blocks = (params.dim_v + kRowsPerCta - 1) / kRowsPerCta;
  const int head = static_cast<int>(blockIdx.x) / blocks, block = static_cast<int>(blockIdx.x) % blocks;
  const int key_head = head / params.ratio;
  // First row of this lane, and how many it has.
  const int row = block * kRowsPerCta + static_cast<int>(threadIdx.x) / kLanes * kRowsPerLane;
  const int num_rows = min(kRowsPerLane, params.dim_v - row);
  const int own_row = row + sub % kRowsPerLane;  // row whose output this lane computes
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
    const float decay = expf(__shfl_sync(kAllLanes, gates.log_decay, idx));
    const float beta = __shfl_sync(kAllLanes, gates.beta, idx);
    const int saved = __shfl_sync(kAllLanes, save_slot, idx);
    float q[kQuads][4], k[kQuads][4];
    raw_q.convert(q);
    raw_k.convert(k);
    [[maybe_unused]] float decays[kQuads][4];
    if constexpr (kPerChannel)
      channel_decays(raw_alpha, params.dt_bias + int64_t{head} * params.dim_k, sub, params, rate, decays);
    const float v = static_cast<float>(raw_v);
    if (token + 1 < request.end) load_token(token + 1);

    float qq = 0.0f, kk = 0.0f, kq = 0.0f, p[kRowsPerLane] = {}, u[kRowsPerLane] = {};
#pragma unroll
    for (int j = 0; j < kQuads; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        qq = fmaf(q[j][i], q[j][i], qq);
        kk = fmaf(k[j][i], k[j][i], kk);
        kq = fmaf(k[j][i], q[j][i], kq);
        float key = k[j][i], query = q[j][i];
        if constexpr (kPerChannel) key = __fmul_rn(key, decays[j][i]), query = __fmul_rn(query, decays[j][i]);
#pragma unroll
        for (int r = 0; r < kRowsPerLane; ++r) {
          p[r] = fmaf(state.rows[r][j][i], key, p[r]);
          u[r] = fmaf(state.rows[r][j][i], query, u[r]);
        }
      }
    const float k_norm = delta_norm(row_sum<kLanes>(kk)),
                q_norm = __fmul_rn(params.q_scale, delta_norm(row_sum<kLanes>(qq)));
    kq = __fmul_rn(__fmul_rn(row_sum<kLanes>(kq), k_norm), q_norm);
    const float sum = sum_to_lanes<kLanes>(p, u, sub);
    // In lanes with p, this is delta of own_row; the lanes with u receive it from them.
    const float delta = __fmul_rn(beta, fmaf(-decay, __fmul_rn(sum, k_norm), v));
    const float delta_of_row = __shfl_xor_sync(kAllLanes, delta, 4);
    if (writes_out && has_own_row)
      *out_at(token) = T(fmaf(__fmul_rn(decay, q_norm), sum, __fmul_rn(kq, delta_of_row)));
    const float scaled = __fmul_rn(delta, k_norm);
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r) {
      const float step = __shfl_sync(kAllLanes, scaled, lane / kLanes * kLanes + r);
#pragma unroll
      for (int j = 0; j < kQuads; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          state.rows[r][j][i] =
              fmaf(step, k[j][i], __fmul_rn(kPerChannel ? decays[j][i] : decay, state.rows[r][j][i]));
    }
    if (saved != 0) state.store(state_at(saved), num_rows, sub, params.dim_k);
  }
  state.store(state_at(request.row), num_rows, sub, params.dim_k);
}

template <class T, int kLanes, int kQuads, bool kAligned>
void launch(const DeltaParams& params, void* stream) {
  constexpr int kRowsPerCta = kWarps * 32 / kLanes * kRowsPerLane;
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
