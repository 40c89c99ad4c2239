// Convolution, gated delta rule and gated norm of requests with one new token each, in one launch on sm_90.
//
//   tile        32 rows of a value head's state per CTA (64 if a key head has more than two value heads); a
//               cluster has all rows of the value heads of one key head
//   warps       2 (4); 8 lanes hold 4 rows of the state
//   registers   64 elements of the state per thread
//   shared      q, k and v after the convolution, outputs, partial sums of the norm
//   bytes       the state read and written once; inputs of q and k once per CTA, from L2
//   bound       latency: replaces three launches
//
// Bits are those of causal_conv_kernel, delta_step_kernel and gated_norm_kernel. Every CTA of a cluster reads
// the window of q and k; the first one stores the new window after all of them have read the old one.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/recurrent/cuda/common/conv_silu.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_state.cuh"
#include "attend/kernels/recurrent/cuda/common/step_request.cuh"
#include "attend/kernels/recurrent/cuda/sm90/delta_token_kernel.h"

namespace attend::kernels::cuda::sm90 {

template <class T, int kRows>
class DeltaTokenCta {
  static constexpr int kDim = kDeltaTokenDim, kLanes = 8, kQuads = kDim / (4 * kLanes);
  static constexpr int kPast = kDeltaTokenTaps - 1;
  static constexpr int kBlocks = kDim / kRows;  // CTAs per value head
  // A unit is four channels: of q, then of k, then of this CTA's rows of v.
  static constexpr int kHeadUnits = kDim / 4, kUnits = 2 * kHeadUnits + kRows / 4;
  static constexpr int kSumOuts = 8, kSums = kDim / kSumOuts;  // outputs per partial sum of the norm

 public:
  static constexpr int kThreads = kRows / kDeltaRowsPerLane * kLanes;

  struct Shared {
    alignas(16) T convolved[2 * kDim + kRows];
    float outs[kRows];
    float sums[kSums];  // of squares, of all rows of the head
  };

  __device__ DeltaTokenCta(const DeltaTokenParams& params, Shared& shared)
      : params_(params),
        shared_(shared),
        head_(static_cast<int>(blockIdx.x) / kBlocks),
        block_(static_cast<int>(blockIdx.x) % kBlocks),
        key_head_(head_ / params.delta.ratio),
        rank_(ptx::cluster_rank()) {}

  __device__ __forceinline__ void run() {
    const DeltaParams& delta = params_.delta;
    Unit units[kUnitsPerThread];
    for_each_unit([&](int i, int unit) { load_weights(unit, units[i]); });
    const float rate = expf(delta.a_log[head_]);
    const float norm_weight =
        thread() < kRows
            ? load_element(params_.norm.weight.data, block_ * kRows + thread(), params_.norm.weight.element)
            : 0.0f;
    ptx::griddepcontrol_wait();
    const StepRequest request = step_request(delta.batch, static_cast<int>(blockIdx.y));
    clear_outs(request.end, request.end + request.num_padding);
    // All CTAs of a cluster have the same request.
    if (request.row == 0) return clear_outs(request.begin, request.end);
    if (request.begin == request.end) return;

    const int token = request.begin, sub = thread() % kLanes;
    const int row = block_ * kRows + thread() / kLanes * kDeltaRowsPerLane;  // first row of this lane
    const auto state_at = [&](int slot) {
      return delta.state + ((int64_t{slot} * delta.num_v_heads + head_) * kDim + row) * kDim;
    };
    StateRows<kLanes, kQuads, /*kAligned=*/true> state;
    if (request.load == 0)
      state.clear();
    else
      state.load(state_at(request.load), kDeltaRowsPerLane, sub, kDim);
    for_each_unit([&](int i, int unit) { load_inputs(unit, token, request.load, units[i]); });
    const DeltaGates gates = delta_gates<T>(delta, token, key_head_, head_, rate);
    const int saved = delta.batch.save_slots == nullptr ? 0 : delta.batch.save_slots[token];
    const float gate = thread() < kRows ? float(*gate_at(token)) : 0.0f;

    for_each_unit([&](int, int unit, const Unit& own) { convolve(unit, own); }, units);
    ptx::cluster_arrive();
    __syncthreads();
    RawRow<T, kLanes, kQuads, true> raw_q, raw_k;
    raw_q.load(shared_.convolved, sub, kDim);
    raw_k.load(shared_.convolved + kDim, sub, kDim);
    float q[kQuads][4], k[kQuads][4];
    raw_q.convert(q);
    raw_k.convert(k);
    const int own_row = row - block_ * kRows + sub % kDeltaRowsPerLane;  // in this CTA
    const float v = static_cast<float>(shared_.convolved[2 * kDim + own_row]);
    const float out = state.template step</*kPerChannel=*/false>(q, k, q, v, expf(gates.log_decay),
                                                                 gates.beta, delta.q_scale, sub);
    if (sub >= 4) shared_.outs[own_row] = float(T(out));
    __syncthreads();

    // The other CTAs have started, and have read the old window.
    ptx::cluster_wait();
    send_sum_of_squares();
    ptx::cluster_arrive();
    for_each_unit(
        [&](int, int unit, const Unit& own) {
          store_window(unit, request.row, own);
          if (saved != 0) store_window(unit, saved, own);
        },
        units);
    if (saved != 0) state.store(state_at(saved), kDeltaRowsPerLane, sub, kDim);
    state.store(state_at(request.row), kDeltaRowsPerLane, sub, kDim);
    ptx::cluster_wait();
    if (thread() >= kRows) return;
    const float scale = 1.0f / sqrtf(sum_of_squares() / static_cast<float>(kDim) + params_.norm.eps);
    const float factor = params_.norm.sigmoid ? 1.0f : gate;
    *out_at(token) =
        T(shared_.outs[thread()] * (scale * norm_weight * __fdividef(factor, 1.0f + __expf(-gate))));
  }

 private:
  static constexpr int kUnitsPerThread = (kUnits + kThreads - 1) / kThreads;

  struct Unit {
    Quad<T> x, window[kPast];
    float4 weights[4];  // the taps of each channel
  };

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }

  template <class Visit>
  __device__ __forceinline__ static void for_each_unit(const Visit& visit) {
#pragma unroll
    for (int i = 0; i < kUnitsPerThread; ++i)
      if (const int unit = thread() + i * kThreads; unit < kUnits) visit(i, unit);
  }
  template <class Visit>
  __device__ __forceinline__ static void for_each_unit(const Visit& visit,
                                                       const Unit (&units)[kUnitsPerThread]) {
#pragma unroll
    for (int i = 0; i < kUnitsPerThread; ++i)
      if (const int unit = thread() + i * kThreads; unit < kUnits) visit(i, unit, units[i]);
  }

  // First channel of a unit in its input: q, k or v.
  __device__ __forceinline__ int channel_of_input(int unit) const {
    if (unit < 2 * kHeadUnits) return key_head_ * kDim + unit % kHeadUnits * 4;
    return head_ * kDim + block_ * kRows + (unit - 2 * kHeadUnits) * 4;
  }
  // First channel of a unit in the convolution.
  __device__ __forceinline__ int channel(int unit) const {
    const int num_q = params_.conv.inputs[0].num_channels;
    return min(unit / kHeadUnits, 2) * num_q + channel_of_input(unit);
  }
  __device__ __forceinline__ void load_weights(int unit, Unit& own) const {
    const auto* const from =
        reinterpret_cast<const float4*>(params_.conv.weight + int64_t{channel(unit)} * kDeltaTokenTaps);
#pragma unroll
    for (int c = 0; c < 4; ++c) own.weights[c] = __ldg(from + c);
  }
  static __device__ __forceinline__ Quad<T> load_quad(const T* from) {
    Quad<T> quad;
    *reinterpret_cast<uint2*>(&quad) = *reinterpret_cast<const uint2*>(from);
    return quad;
  }
  __device__ __forceinline__ T* window_at(int slot, int j, int unit) const {
    return static_cast<T*>(params_.conv.state) + (int64_t{slot} * kPast + j) * params_.conv.num_channels +
           channel(unit);
  }
  __device__ __forceinline__ void load_inputs(int unit, int token, int load, Unit& own) const {
    const ConvInput& input = params_.conv.inputs[min(unit / kHeadUnits, 2)];
    const int c = channel_of_input(unit);
    own.x = load_quad(static_cast<const T*>(input.data) + token * input.token_stride +
                      c / input.width * input.group_stride + c % input.width);
#pragma unroll
    for (int j = 0; j < kPast; ++j)
      own.window[j] = load == 0 ? Quad<T>{} : load_quad(window_at(load, j, unit));
  }
  // Same order of sums as in the causal convolution.
  __device__ __forceinline__ void convolve(int unit, const Unit& own) const {
    Quad<T> result;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float4& weights = own.weights[c];
      float sum = 0.0f;
      sum = fmaf(weights.x, float(own.window[0].elements[c]), sum);
      sum = fmaf(weights.y, float(own.window[1].elements[c]), sum);
      sum = fmaf(weights.z, float(own.window[2].elements[c]), sum);
      sum = fmaf(weights.w, float(own.x.elements[c]), sum);
      result.elements[c] = T(conv_silu<T>(sum));
    }
    *reinterpret_cast<uint2*>(shared_.convolved + 4 * unit) = *reinterpret_cast<const uint2*>(&result);
  }
  // The window of q and k belongs to the first CTA of the cluster.
  __device__ __forceinline__ void store_window(int unit, int slot, const Unit& own) const {
    if (unit < 2 * kHeadUnits && rank_ != 0) return;
#pragma unroll
    for (int j = 0; j < kPast; ++j)
      *reinterpret_cast<uint2*>(window_at(slot, j, unit)) =
          *reinterpret_cast<const uint2*>(j + 1 < kPast ? &own.window[j + 1] : &own.x);
  }

  // Sends this CTA's partial sums to the CTAs of the head.
  __device__ __forceinline__ void send_sum_of_squares() const {
    if (thread() >= kRows / kSumOuts) return;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kSumOuts; ++i) {
      const float x = shared_.outs[thread() * kSumOuts + i];
      sum = fmaf(x, x, sum);
    }
    const uint32_t to = ptx::shared_address(&shared_.sums[block_ * (kRows / kSumOuts) + thread()]);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) ptx::st_shared_cluster(ptx::mapa(to, rank_ - block_ + i), sum);
  }
  // Adds partial sums in the order of a butterfly over 16 lanes.
  __device__ __forceinline__ float sum_of_squares() const {
    float sums[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = shared_.sums[i];
#pragma unroll
    for (int step = kSums / 2; step > 0; step /= 2)
#pragma unroll
      for (int i = 0; i < step; ++i) sums[i] += sums[i + step];
    return sums[0];
  }

  __device__ __forceinline__ const T* gate_at(int token) const {
    const GatedNormParams& norm = params_.norm;
    const int group = head_ / norm.heads_per_group, in_group = head_ % norm.heads_per_group;
    return static_cast<const T*>(norm.gate.data) + token * norm.gate.outer_stride +
           group * norm.gate.inner_stride + int64_t{in_group} * kDim + block_ * kRows + thread();
  }
  __device__ __forceinline__ T* out_at(int token) const {
    const OutRows& out = params_.delta.out;
    return static_cast<T*>(out.data) + token * out.token_stride + head_ * out.head_stride + block_ * kRows +
           thread();
  }
  __device__ __forceinline__ void clear_outs(int begin, int end) const {
    if (thread() < kRows)
      for (int token = begin; token < end; ++token) *out_at(token) = T(0.0f);
  }

  const DeltaTokenParams& params_;
  Shared& shared_;
  const int head_, block_, key_head_, rank_;
};

template <class T, int kRows>
__global__ void __launch_bounds__(DeltaTokenCta<T, kRows>::kThreads)
    delta_token_kernel(const __grid_constant__ DeltaTokenParams params) {
  ptx::launch_dependents();
  __shared__ typename DeltaTokenCta<T, kRows>::Shared shared;
  DeltaTokenCta<T, kRows>(params, shared).run();
}

template <class T, int kRows>
void launch_delta_token_rows(const DeltaTokenParams& params, void* stream) {
  constexpr int kBlocks = kDeltaTokenDim / kRows;
  const DeltaParams& delta = params.delta;
  launch_dependent<DeltaTokenParams>(
      delta_token_kernel<T, kRows>,
      dim3(static_cast<unsigned>(delta.num_v_heads * kBlocks), static_cast<unsigned>(delta.batch.num_reqs)),
      DeltaTokenCta<T, kRows>::kThreads, 0, stream, params, "delta_token", delta.ratio * kBlocks);
}

template <class T>
void launch_delta_token(const DeltaTokenParams& params, void* stream) {
  // At most eight CTAs per cluster.
  if (params.delta.ratio <= 2) return launch_delta_token_rows<T, 32>(params, stream);
  launch_delta_token_rows<T, 64>(params, stream);
}

}  // namespace attend::kernels::cuda::sm90
