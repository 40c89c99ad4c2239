// One-shot collectives over peer memory: a rank stores its data in a slot of every other rank, and polls its
// own slots.
//
//   tile        16 bytes per thread; CTAs have no common data
//   warps       16, all alike
//   registers   at most 64
//   shared      none
//   bytes       x is written to num_ranks - 1 peers, and read as often from slots; stream, scaled copy and
//   squares once bound       latency of one crossing of NVLink for small x, its bandwidth for large x
//
// There is no barrier: a word in a slot is data if it differs from kEmptyWord, so data and flag arrive
// together. Vectors of 16 bytes are not atomic (PTX ISA, "Vector Data-types" of the memory consistency
// model), so each word is compared. The launches have no programmatic dependent launch: the reset of a slot
// is complete before the next operation of the stream begins, and a peer pushes to it again only after it has
// received data of that operation.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attend/kernels/comm/cuda/push_kernels.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 512;
// All CTAs of a launch are resident, also if a test runs two ranks on one GPU.
constexpr int kMaxCtas = 128;
// Vectors of a thread that are stored, or received, at once.
constexpr int kPushed = 4, kReceived = 2;
constexpr int kSpinsPerCheck = 1024;

__device__ __forceinline__ uint4 load_volatile(const uint4* from) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_volatile(uint4* to, const uint4& v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

template <bool kHalf>
__device__ __forceinline__ uint32_t without_minus_zero(uint32_t word) {
  if constexpr (kHalf) {
    if ((word & 0xffffu) == 0x8000u) word &= 0xffff0000u;
    if ((word & 0xffff0000u) == 0x80000000u) word &= 0x0000ffffu;
    return word;
  }
  return word == kEmptyWord ? 0u : word;
}

// Waits of one thread.
class Waits {
 public:
  __device__ explicit Waits(const PeerSlots& peers) : peers_(peers) {}

  // Returns false if the wait has to end without data. Called again and again.
  __device__ __forceinline__ bool may_continue() {
    if (++num_spins_ % kSpinsPerCheck != 0) return true;
    const uint64_t now = nanoseconds();
    if (start_ == 0) start_ = now;
    volatile uint32_t* const stop = peers_.stop;
    if (now - start_ > peers_.timeout_ns) *stop = 1;
    return *stop == 0;
  }

 private:
  const PeerSlots& peers_;
  uint32_t num_spins_ = 0;
  uint64_t start_ = 0;
};

__device__ __forceinline__ std::byte* slot(const PeerSlots& peers, int owner, int from, uint32_t epoch) {
  return peers.slots[owner] + ((epoch & 1) * peers.num_ranks + from) * peers.slot_bytes;
}

// Returns the vector of a slot, of which `v` has been loaded, and resets it.
__device__ __forceinline__ uint4 receive(uint4* from, uint4 v, Waits& waits) {
  while (v.x == kEmptyWord || v.y == kEmptyWord || v.z == kEmptyWord || v.w == kEmptyWord) {
    if (!waits.may_continue()) break;
    v = load_volatile(from);
  }
  store_volatile(from, {kEmptyWord, kEmptyWord, kEmptyWord, kEmptyWord});
  return v;
}

// The last CTA of the operation counts it.
__device__ __forceinline__ void finish(const PeerSlots& peers, uint32_t epoch) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (atomicAdd(peers.num_done, 1u) != gridDim.x - 1) return;
  *peers.num_done = 0;
  *peers.epoch = epoch + 1;
}

template <class T>
struct Vector {
  static constexpr bool kHalf = sizeof(T) == 2;
  static constexpr int kElements = 16 / sizeof(T);

  __device__ static void add(const uint4& bits, float (&sum)[kElements]) {
    const T* const elements = reinterpret_cast<const T*>(&bits);
#pragma unroll
    for (int i = 0; i < kElements; ++i) sum[i] += static_cast<float>(elements[i]);
  }
  __device__ static uint4 round(const float (&values)[kElements]) {
    uint4 bits;
    T* const elements = reinterpret_cast<T*>(&bits);
#pragma unroll
    for (int i = 0; i < kElements; ++i) elements[i] = static_cast<T>(values[i]);
    return bits;
  }
};

// Stores the sum of all ranks for vector `v`. Neighboring lanes have neighboring vectors.
template <class T>
__device__ __forceinline__ void store_sum(const PushSumParams& params, int64_t v,
                                          float (&sum)[Vector<T>::kElements]) {
  using Bits = Vector<T>;
  constexpr int kElements = Bits::kElements;
  if (params.sum == nullptr) {
    static_cast<uint4*>(params.x)[v] = Bits::round(sum);
    return;
  }
  uint4* const stream = static_cast<uint4*>(params.sum) + v;
  Bits::add(*stream, sum);
  const uint4 rounded = Bits::round(sum);
  *stream = rounded;
  if (params.weight.data == nullptr) return;
  float squares = 0.0f, scaled[kElements], values[kElements] = {};
  Bits::add(rounded, values);
  const int64_t column = v * kElements % params.dim;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    squares += values[i] * values[i];
    scaled[i] = values[i] * load_element(params.weight.data, column + i, params.weight.element);
  }
  static_cast<uint4*>(params.scaled)[v] = Bits::round(scaled);
  // Lanes of 16 neighboring features; dim is a multiple of 16, so that they are all active.
  constexpr int kLanes = 16 / kElements;
  const unsigned lane = threadIdx.x % 32, mask = ((1u << kLanes) - 1) << (lane / kLanes * kLanes);
  for (int distance = 1; distance < kLanes; distance *= 2)
    squares += __shfl_xor_sync(mask, squares, distance);
  if (lane % kLanes == 0) params.squares[v / kLanes] = squares;
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2) push_sum_kernel(const __grid_constant__ PushSumParams params) {
  using Bits = Vector<T>;
  constexpr int kElements = Bits::kElements;
  const PeerSlots& peers = params.peers;
  const uint32_t epoch = *peers.epoch;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x, step = int64_t{gridDim.x} * kThreads;
  uint4* const x = static_cast<uint4*>(params.x);
  const auto payload = [&](int64_t v) {
    const uint4 bits = x[v];
    return uint4{without_minus_zero<Bits::kHalf>(bits.x), without_minus_zero<Bits::kHalf>(bits.y),
                 without_minus_zero<Bits::kHalf>(bits.z), without_minus_zero<Bits::kHalf>(bits.w)};
  };
  for (int64_t v = first; v < params.num_vectors; v += kPushed * step) {
    uint4 own[kPushed];
#pragma unroll
    for (int i = 0; i < kPushed; ++i)
      if (v + i * step < params.num_vectors) own[i] = payload(v + i * step);
    for (int peer = 0; peer < peers.num_ranks; ++peer) {
      if (peer == peers.rank) continue;
      uint4* const to = reinterpret_cast<uint4*>(slot(peers, peer, peers.rank, epoch));
#pragma unroll
      for (int i = 0; i < kPushed; ++i)
        if (v + i * step < params.num_vectors) store_volatile(to + v + i * step, own[i]);
    }
  }
  Waits waits(peers);
  for (int64_t begin = first; begin < params.num_vectors; begin += kReceived * step) {
    float sums[kReceived][kElements] = {};
    for (int rank = 0; rank < peers.num_ranks; ++rank) {
      uint4 parts[kReceived];
      uint4* const from = reinterpret_cast<uint4*>(slot(peers, peers.rank, rank, epoch));
#pragma unroll
      for (int i = 0; i < kReceived; ++i) {
        const int64_t v = begin + i * step;
        if (v < params.num_vectors) parts[i] = rank == peers.rank ? payload(v) : load_volatile(from + v);
      }
#pragma unroll
      for (int i = 0; i < kReceived; ++i) {
        const int64_t v = begin + i * step;
        if (v >= params.num_vectors) continue;
        if (rank != peers.rank) parts[i] = receive(from + v, parts[i], waits);
        Bits::add(parts[i], sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kReceived; ++i)
      if (begin + i * step < params.num_vectors) store_sum<T>(params, begin + i * step, sums[i]);
  }
  finish(peers, epoch);
}

template <bool kHalf>
__global__ void __launch_bounds__(kThreads)
    push_columns_kernel(const __grid_constant__ PushColumnsParams params) {
  const PeerSlots& peers = params.peers;
  const uint32_t epoch = *peers.epoch;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x, step = int64_t{gridDim.x} * kThreads;
  const auto width = [&](int rank) { return params.bounds[rank + 1] - params.bounds[rank]; };
  const auto element = [&](int rank, int64_t i) {
    return params.x + i / width(rank) * params.row_stride + params.bounds[rank] + i % width(rank);
  };
  for (int64_t i = first; i < params.num_rows * width(peers.rank); i += step) {
    const uint32_t word = without_minus_zero<kHalf>(*element(peers.rank, i));
    for (int peer = 0; peer < peers.num_ranks; ++peer)
      if (peer != peers.rank)
        reinterpret_cast<volatile uint32_t*>(slot(peers, peer, peers.rank, epoch))[i] = word;
  }
  Waits waits(peers);
  for (int rank = 0; rank < peers.num_ranks; ++rank) {
    if (rank == peers.rank) continue;
    volatile uint32_t* const from =
        reinterpret_cast<volatile uint32_t*>(slot(peers, peers.rank, rank, epoch));
    for (int64_t i = first; i < params.num_rows * width(rank); i += step) {
      uint32_t word = from[i];
      while (word == kEmptyWord && waits.may_continue()) word = from[i];
      from[i] = kEmptyWord;
      *element(rank, i) = word;
    }
  }
  finish(peers, epoch);
}

__global__ void __launch_bounds__(kThreads) fill_empty_kernel(uint32_t* words, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) words[i] = kEmptyWord;
}

unsigned num_ctas(int64_t num_items) {
  const int64_t wanted = (num_items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(wanted < 1 ? 1 : wanted > kMaxCtas ? kMaxCtas : wanted);
}

}  // namespace

void launch_push_sum(const PushSumParams& params, void* stream) {
  const auto launch = [&](auto kernel) {
    kernel<<<num_ctas(params.num_vectors), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(params);
  };
  if (params.element == Element::kBF16)
    launch(push_sum_kernel<__nv_bfloat16>);
  else if (params.element == Element::kF16)
    launch(push_sum_kernel<__half>);
  else
    launch(push_sum_kernel<float>);
  attend::cuda::check(cudaGetLastError(), "push_sum");
}

void launch_push_columns(const PushColumnsParams& params, void* stream) {
  const int rank = params.peers.rank;
  const unsigned ctas = num_ctas(params.num_rows * (params.bounds[rank + 1] - params.bounds[rank]));
  const auto queue = static_cast<cudaStream_t>(stream);
  if (params.half)
    push_columns_kernel<true><<<ctas, kThreads, 0, queue>>>(params);
  else
    push_columns_kernel<false><<<ctas, kThreads, 0, queue>>>(params);
  attend::cuda::check(cudaGetLastError(), "push_columns");
}

void launch_fill_empty(uint32_t* words, int64_t count, void* stream) {
  fill_empty_kernel<<<num_ctas(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(words, count);
  attend::cuda::check(cudaGetLastError(), "fill_empty");
}

}  // namespace attend::kernels::cuda
