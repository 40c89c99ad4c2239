#include <algorithm>
#include <fstream>
#include <sstream>

#include "attend/bench/cuda/gpu_probes.h"
#include "attend/bench/timing.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/tensor/cuda_check.h"

namespace attend::bench {
namespace {

// Converts CUDA's version number: 1000 per major and 10 per minor version.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Parses the kernel module's line "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  <date>", which
// may contain "Open" and "for": the version is the first word that begins with a digit.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line, word;
  std::getline(file, line);
  std::istringstream words(line);
  while (words >> word)
    if (word.front() >= '0' && word.front() <= '9') return word;
  return "unknown";
}

// Reads memory at maximum speed, the limit of decode.
constexpr int kThreads = 512;
constexpr int kUnroll = 8;

__global__ void __launch_bounds__(kThreads) read_kernel(const uint4* data, size_t count, float* sink) {
  uint32_t sum = 0;
  const size_t stride = size_t{gridDim.x} * kThreads;
  size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride) {
    uint4 values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) values[u] = __ldcs(data + i + u * stride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sum += values[u].x ^ values[u].y ^ values[u].z ^ values[u].w;
  }
  for (; i < count; i += stride) sum += data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
  if (sum == 0x12345678u) *sink = 1.0f;
}

}  // namespace

void launch_read(const void* data, size_t num_bytes, float* sink, int num_ctas, void* stream) {
  read_kernel<<<num_ctas, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const uint4*>(data),
                                                                            num_bytes / 16, sink);
  attend::cuda::check(cudaGetLastError(), "read kernel");
}

GpuFacts gpu_facts(Device device) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    attend::cuda::check(cudaDeviceGetAttribute(&value, which, device.index), "device attribute");
    return value;
  };
  int driver_cuda = 0, cuda = 0;
  attend::cuda::check(cudaDriverGetVersion(&driver_cuda), "driver version");
  attend::cuda::check(cudaRuntimeGetVersion(&cuda), "runtime version");
  constexpr int kKilo = 1000;
  return {.sm_clock = attribute(cudaDevAttrClockRate) / kKilo,
          .memory_clock = attribute(cudaDevAttrMemoryClockRate) / kKilo,
          .driver = driver_version(),
          .driver_cuda = version_text(driver_cuda),
          .cuda = version_text(cuda)};
}

double fastest_read(Stream& stream) {
  const cuda::DeviceScope scope(stream.device);
  constexpr int64_t kBytes = int64_t{4} << 30;
  const Tensor data = cuda::empty({kBytes / 2}, DType::kBF16, stream.device);
  // Random data, since zeros are read faster.
  kernels::fill_random(data, {}, stream);
  const Tensor sink = cuda::empty({1}, DType::kF32, stream.device);
  const int num_sms = cuda::device_info(stream.device).num_sms;
  double fastest = 0.0;
  for (const int ctas_per_sm : {2, 4, 8, 16}) {
    const double microseconds = time_graph(stream, 3, [&](int) {
      launch_read(data.view().data, static_cast<size_t>(kBytes), sink.as<float>(), ctas_per_sm * num_sms,
                  stream.handle);
    });
    fastest = std::max(fastest, static_cast<double>(kBytes) / microseconds);
  }
  return fastest;
}

}  // namespace attend::bench
