#!/usr/bin/env bash
# Checks that a CPU build includes no CUDA header, even if the compiler can find them, since machines without CUDA build
# attend too.
#   scripts/check_cpu_build.sh BUILD_FOLDER      a complete Ninja build
set -euo pipefail
build=${1:?check_cpu_build: expected a build folder}
headers='/(cuda|cuda_runtime|cuda_runtime_api|cuda_bf16|cuda_fp16|cuda_fp8|cublasLt|driver_types)\.h$'
all=$(ninja -C "$build" -t deps)
[[ $all == *src/attend/kernels/gemm/cuda/choose.cc* ]] || { echo "check_cpu_build: $build has not been built" >&2; exit 1; }
if found=$(awk -v headers="$headers" '/^[^ ]/ { object = $1 } $1 ~ headers && !/attend\/tensor/ { print object, $1 }' <<<"$all" |
  grep .); then
  echo "check_cpu_build: CUDA headers in a CPU build:" >&2
  echo "$found" >&2
  exit 1
fi
echo "check_cpu_build: no CUDA header is included"
