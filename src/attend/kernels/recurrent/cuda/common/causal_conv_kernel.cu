// Causal convolution over the tokens of each request.
//
//   tile        128 threads, each with 16 bytes of channels (one channel if rows are not aligned) and 1 to 32
//               consecutive tokens; loads of four tokens are in flight
//   warps       4, all alike
//   registers   weights and inputs of 4 taps x 8 channels (8 taps x 1 channel)
//   shared      17 KB of weights, 9 KB in f32
//   bytes       each input once, and num_taps - 1 inputs again per thread; each output once
//   bound       memory; latency if tokens are few
//
// A state has one reader and writer per channel: the thread with a request's first token. It reads the old
// window, then stores the new one, whose inputs are in memory already. The next num_taps - 2 tokens, which
// need the old window too, belong to the same thread.
#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/recurrent/cuda/common/causal_conv_kernel.h"
#include "attend/kernels/recurrent/cuda/common/conv_silu.cuh"
#include "attend/kernels/recurrent/cuda/common/step_request.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTokensInFlight = 4;
constexpr int kMaxThreadTokens = 32;

// Returns the index of the request with this token; num_reqs for tokens after the last request. Called by all
// threads of a CTA.
__device__ int find_request(const StepBatch& batch, int token) {
  int num_before = 0;
  for (int first = 0; first < batch.num_reqs; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    num_before += __syncthreads_count(i < batch.num_reqs && batch.cu_seqlen_q[i + 1] <= token);
  }
  return num_before;
}

// Like step_request(); index num_reqs returns the tokens after the last request, which are padding.
__device__ StepRequest request_or_padding(const StepBatch& batch, int request_idx) {
  if (request_idx < batch.num_reqs) return step_request(batch, request_idx);
  return {.begin = batch.cu_seqlen_q[batch.num_reqs],
          .end = batch.num_tokens,
          .row = 0,
          .load = 0,
          .seqlen_kv = 0,
          .num_padding = 0};
}

template <class T, int kChannels>
struct alignas(sizeof(T) * kChannels < 16 ? sizeof(T) * kChannels : 16) Channels {
  T values[kChannels];
};

// Channels of a thread. kTaps is at least num_taps: older taps have weight 0.
template <class T, int kChannels, int kTaps>
class ConvThread {
 public:
  using Bits = Channels<T, kChannels>;

  // `weights`: [kChannels, num_taps] of this thread.
  __device__ ConvThread(const CausalConvParams& params, int channel, const float* weights)
      : params_(params), channel_(channel), num_past_(params.num_taps - 1) {
    int input_idx = 0, first = channel;
    while (first >= params.inputs[input_idx].num_channels) first -= params.inputs[input_idx++].num_channels;
    const ConvInput& input = params.inputs[input_idx];
    input_ =
        static_cast<const T*>(input.data) + first / input.width * input.group_stride + first % input.width;
    token_stride_ = input.token_stride;
    Channels<float, kChannels> bias{};
    if (params.bias != nullptr)
      bias = *reinterpret_cast<const Channels<float, kChannels>*>(params.bias + channel);
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      bias_[c] = bias.values[c];
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        const int tap = j - (kTaps - params.num_taps);
        weights_[j][c] = tap < 0 ? 0.0f : weights[c * params.num_taps + tap];
      }
    }
  }

  // Starts to load the input of token `first` of run(), before its request is known.
  __device__ void load_ahead(int first) {
    ahead_token_ = first;
    ahead_ = load_input(first);
  }

  // Convolves tokens [first, last) except those that belong to the thread before, and those after `last` that
  // belong to this one. `request_idx`: request of `first`.
  __device__ void run(int first, int last, int request_idx) {
    for (int token = first; token < last;) {
      StepRequest request = request_or_padding(params_.batch, request_idx);
      while (request.end <= token) request = request_or_padding(params_.batch, ++request_idx);
      const int head_end = min(request.begin + num_past_, request.end);
      if (token > request.begin && token < head_end) {
        token = head_end;
        continue;
      }
      const int end = min(request.end, max(last, token == request.begin ? head_end : last));
      if (request.row == 0) {
        clear(token, end);
      } else {
        if (token == request.begin)
          begin(request);
        else
          load_window(token);
        convolve(token, end);
      }
      token = end;
    }
  }

 private:
  static constexpr int kPast = kTaps - 1;

  __device__ Bits load_input(int64_t token) const {
    return *reinterpret_cast<const Bits*>(input_ + token * token_stride_);
  }
  __device__ T* state(int slot, int j) const {
    return static_cast<T*>(params_.state) +
           (static_cast<int64_t>(slot) * num_past_ + j) * params_.num_channels + channel_;
  }
  static __device__ void convert(const Bits& bits, float (&to)[kChannels]) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) to[c] = static_cast<float>(bits.values[c]);
  }
  // Exact for values that were converted from T.
  static __device__ void store(T* to, const float (&values)[kChannels]) {
    Bits bits;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) bits.values[c] = T(values[c]);
    *reinterpret_cast<Bits*>(to) = bits;
  }

  __device__ void clear(int token, int end) const {
    const float zeros[kChannels] = {};
    for (; token < end; ++token) store(out(token), zeros);
  }
  __device__ T* out(int64_t token) const {
    return static_cast<T*>(params_.out) + token * params_.out_stride + channel_;
  }

  // Loads the old window, and stores the window after the request's last token.
  __device__ void begin(const StepRequest& request) {
#pragma unroll
    for (int j = 0; j < kPast; ++j) {
      const int from = j - (kPast - num_past_);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) window_[j][c] = 0.0f;
      if (from >= 0 && request.load > 0)
        convert(*reinterpret_cast<const Bits*>(state(request.load, from)), window_[j]);
    }
    const int num_tokens = request.end - request.begin;
#pragma unroll
    for (int j = 0; j < kPast; ++j) {
      // window_[j] moves num_tokens places toward the oldest.
      const int to = j - (kPast - num_past_) - num_tokens;
      if (to >= 0) store(state(request.row, to), window_[j]);
    }
    for (int j = max(0, num_past_ - num_tokens); j < num_past_; ++j)
      *reinterpret_cast<Bits*>(state(request.row, j)) = loaded_input(request.end - num_past_ + j);
  }
  __device__ void load_window(int token) {
#pragma unroll
    for (int j = 0; j < kPast; ++j) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) window_[j][c] = 0.0f;
      if (j >= kPast - num_past_) convert(load_input(token - kPast + j), window_[j]);
    }
  }

  // Tokens of one request, whose inputs before `token` are in the window.
  __device__ void convolve(int token, int end) {
    for (; token + kTokensInFlight <= end; token += kTokensInFlight) {
      Bits bits[kTokensInFlight];
      int saves[kTokensInFlight];
#pragma unroll
      for (int u = 0; u < kTokensInFlight; ++u) {
        bits[u] = load_input(token + u);
        saves[u] = save_slot(token + u);
      }
#pragma unroll
      for (int u = 0; u < kTokensInFlight; ++u) convolve_token(bits[u], token + u, saves[u]);
    }
#pragma unroll 1
    for (; token < end; ++token) convolve_token(loaded_input(token), token, save_slot(token));
  }
  __device__ Bits loaded_input(int64_t token) const {
    return token == ahead_token_ ? ahead_ : load_input(token);
  }
  __device__ int save_slot(int token) const {
    return params_.batch.save_slots == nullptr ? 0 : params_.batch.save_slots[token];
  }
  __device__ void convolve_token(const Bits& bits, int token, int saved) {
    float x[kChannels], sums[kChannels];
    convert(bits, x);
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      float sum = bias_[c];
#pragma unroll
      for (int j = 0; j < kPast; ++j) sum = fmaf(weights_[j][c], window_[j][c], sum);
      sum = fmaf(weights_[kPast][c], x[c], sum);
      sums[c] = params_.silu ? conv_silu<T>(sum) : sum;
#pragma unroll
      for (int j = 0; j + 1 < kPast; ++j) window_[j][c] = window_[j + 1][c];
      window_[kPast - 1][c] = x[c];
    }
    store(out(token), sums);
    if (saved == 0) return;
#pragma unroll
    for (int j = 0; j < kPast; ++j)
      if (const int to = j - (kPast - num_past_); to >= 0) store(state(saved, to), window_[j]);
  }

  const CausalConvParams& params_;
  const int channel_, num_past_;
  const T* input_;
  int64_t token_stride_;
  int64_t ahead_token_ = -1;
  Bits ahead_;
  float weights_[kTaps][kChannels], bias_[kChannels], window_[kPast][kChannels];
};

struct CausalConvLaunch {
  CausalConvParams params;
  int32_t thread_tokens;
};

// Weights of the threads of a CTA. A thread's weights are adjacent in memory, so they are copied together; an
// odd distance between threads avoids bank conflicts.
template <int kChannels, int kTaps>
struct ConvWeights {
  float values[kThreads * (kChannels * kTaps + 1)];

  // Returns the weights of this thread. Called by all threads of the CTA.
  __device__ const float* load(const CausalConvParams& params) {
    const int thread_weights = kChannels * params.num_taps;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * thread_weights;
    const auto* const from = reinterpret_cast<const float4*>(params.weight + first);
    const int64_t num_left = static_cast<int64_t>(params.num_channels) * params.num_taps - first;
    const int count = static_cast<int>(min(num_left, static_cast<int64_t>(kThreads * thread_weights)));
    for (int i = 4 * static_cast<int>(threadIdx.x); i < count; i += 4 * kThreads) {
      const float4 weights = from[i / 4];
      float* const to = values + i + i / thread_weights;
      to[0] = weights.x;
      to[1] = weights.y;
      to[2] = weights.z;
      to[3] = weights.w;
    }
    __syncthreads();
    return values + static_cast<int>(threadIdx.x) * (thread_weights + 1);
  }
};

// Weights are read before griddepcontrol_wait().
template <class T, int kChannels, int kTaps>
__global__ void __launch_bounds__(kThreads)
    causal_conv_kernel(const __grid_constant__ CausalConvLaunch launch) {
  ptx::launch_dependents();
  const CausalConvParams& params = launch.params;
  const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kChannels;
  const bool active = channel < params.num_channels;
  const float* weights = params.weight + (active ? static_cast<int64_t>(channel) * params.num_taps : 0);
  if constexpr (kChannels > 1) {
    __shared__ ConvWeights<kChannels, kTaps> shared;
    weights = shared.load(params);
  }
  ConvThread<T, kChannels, kTaps> thread(params, active ? channel : 0, weights);
  ptx::griddepcontrol_wait();
  const int first = static_cast<int>(blockIdx.y) * launch.thread_tokens;
  if (active) thread.load_ahead(first);
  const int request_idx = find_request(params.batch, first);
  if (active) thread.run(first, min(first + launch.thread_tokens, params.batch.num_tokens), request_idx);
}

template <class T, int kChannels, int kTaps>
void launch_typed(const CausalConvParams& params, void* stream) {
  constexpr int kCtasPerSm = 8;
  const int num_columns = (params.num_channels + kThreads * kChannels - 1) / (kThreads * kChannels);
  const int num_tokens = params.batch.num_tokens, min_ctas = kCtasPerSm * num_sms();
  const auto num_rows = [&](int tokens) { return (num_tokens + tokens - 1) / tokens; };
  int thread_tokens = kMaxThreadTokens;
  while (thread_tokens > 1 && num_rows(thread_tokens) * num_columns < min_ctas) thread_tokens /= 2;
  launch_dependent<CausalConvLaunch>(
      causal_conv_kernel<T, kChannels, kTaps>,
      dim3(static_cast<unsigned>(num_columns), static_cast<unsigned>(num_rows(thread_tokens))), kThreads, 0,
      stream, {params, thread_tokens}, "causal convolution");
}

template <class T>
void launch(const CausalConvParams& params, void* stream) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T)), kVectorTaps = 4, kMaxTaps = 8;
  if (params.aligned && params.num_taps <= kVectorTaps)
    return launch_typed<T, kVector, kVectorTaps>(params, stream);
  launch_typed<T, 1, kMaxTaps>(params, stream);
}

}  // namespace

void launch_causal_conv(const CausalConvParams& params, void* stream) {
  if (params.batch.num_tokens == 0 || params.num_channels == 0) return;
  if (params.element == Element::kBF16) return launch<__nv_bfloat16>(params, stream);
  if (params.element == Element::kF16) return launch<__half>(params, stream);
  launch<float>(params, stream);
}

}  // namespace attend::kernels::cuda
