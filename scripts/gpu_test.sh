#!/usr/bin/env bash
# Builds everything and runs the GPU tests on a machine with a GPU; elsewhere the same tests skip and say so. Fails
# also when a kernel that was built spills registers.
#   scripts/gpu_test.sh            build and test
#   scripts/gpu_test.sh --bench    then time attention and dense layers too
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=$(nproc)
build=build/gpu
architectures=${ATTEND_CUDA_ARCHITECTURES:-90a-real;90-real}
cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DATTEND_CUDA=ON -DATTEND_BENCHMARKS=ON \
  -DATTEND_CUDA_ARCHITECTURES="$architectures" -DCMAKE_CUDA_FLAGS=-Xptxas=-v >/dev/null
cmake --build "$build" --target kernels_cuda_test dense_gpu_test tensor_test engine_test tiny_model_test \
  model_golden_test cuda_attention_bench cuda_linear_bench -j "$jobs" >"$build/build.log" 2>&1 ||
  { grep -E "error|FAILED" "$build/build.log" >&2; exit 1; }

scripts/check_spills.py --allow-none "$build/build.log"
# Suites of the GPU alone, then the GPU's share of those that know both devices.
(cd "$build" && ctest -L gpu -j "$jobs" --output-on-failure && ctest -R '[gG]pu' -LE gpu -j "$jobs" --output-on-failure)
if [[ ${1:-} == --bench ]]; then
  "$build/benchmarks/cuda/cuda_attention_bench"
  "$build/benchmarks/cuda/cuda_linear_bench"
fi
