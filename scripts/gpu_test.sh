#!/usr/bin/env bash
# Builds and runs every GPU test on a machine with a GPU; elsewhere the same tests skip and are counted so. Fails also
# when a kernel that was built spills registers. A table of suites comes last.
#   scripts/gpu_test.sh              build and test: the C++ suites, and tests/python where python3 has torch
#   scripts/gpu_test.sh --sanitize   build, then memcheck and racecheck of compute-sanitizer over a part of each family
#   scripts/gpu_test.sh --bench      build and test, then time attention and dense layers
# ATTEND_CUDA_ARCHITECTURES: what to build for; without it the GPU's own architecture. ATTEND_SKIP_PACKAGES=1 goes on
# without a look at the installed packages.
set -euo pipefail
usage() { sed -n '2,8s/^# \?//p' "$0"; }
mode=${1:-}
case $mode in
  "" | --bench) ;;
  --sanitize)
    command -v compute-sanitizer >/dev/null || {
      echo "gpu_test: --sanitize needs compute-sanitizer on the PATH: package cuda-sanitizer-13-0 for CUDA 13.0" >&2
      exit 2
    } ;;
  --help | -h) usage; exit ;;
  *) usage >&2; exit 2 ;;
esac
source "$(dirname "$0")/setup.sh"  # changes the folder

# What CMake calls the first GPU; Hopper has instructions of its own besides.
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d . || true)
native=${capability:-90}-real
[[ $native == 90-real ]] && native="90a-real;90-real"
architectures=${ATTEND_CUDA_ARCHITECTURES:-$native}
build=build/gpu
log=$build/build.log
[[ -n $capability ]] || echo "gpu_test: nvidia-smi shows no GPU here: will now build everything, log in $log; what needs a GPU skips"

# Programs of GPU tests alone, and the GPU's share of those that know both devices.
suites=(
  kernels_cuda_test
  dense_gpu_test
  "tensor_test=*gpu*:*Gpu*"
  "backends_conformance_test=*gpu*"
  "engine_test=*gpu*:*Gpu*"
  "deterministic_test=*gpu*"
  "tiny_model_test=*gpu*"
  "model_golden_test=*gpu*"
  "cli_test=*Gpu*"
)
# A part of the conformance suite, MLA, fixed splits, graphs, what a model computes besides, and replayed steps.
memcheck=(
  "kernels_cuda_test=Every/CudaAttentionPart.*/0:*Mla*:*ManyFixedSplits:*CapturedGraph*:CudaMerge.*:CudaStore.*:CudaMetadata.*:CudaBatchArrays.*:CudaSampling.*"
  dense_gpu_test
  "engine_test=*ReplayOnGpu*"
)
# What shares memory among threads: another part of the suite, permuted pages, MLA, merges, dense layers but those of
# sm_90, whose warps wait for the copy engine at barriers: racecheck was not seen to end there.
racecheck=(
  "kernels_cuda_test=Every/CudaAttentionPart.*/1:*ServesMlaLayersOnTensorCores:CudaMerge.*:CudaStore.*"
  "dense_gpu_test=*Linear*:*Dense*:*LeavesTheCache*-Sm90*:FusedLinear*:*Gated*"
)

build_suites() {
  local start=$SECONDS targets=("${suites[@]%%=*}")
  [[ $mode == --bench ]] && targets+=(cuda_attention_bench cuda_linear_bench)
  mkdir -p "$build"
  cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DATTEND_CUDA=ON -DATTEND_BENCHMARKS=ON \
    -DATTEND_CUDA_ARCHITECTURES="$architectures" -DCMAKE_CUDA_FLAGS=-Xptxas=-v >"$build/configure.log" 2>&1 ||
    { cat "$build/configure.log" >&2; exit 1; }
  cmake --build "$build" --target "${targets[@]}" >"$log" 2>&1 || { grep -E -A 20 "error|FAILED" "$log" >&2; exit 1; }
  scripts/check_spills.py --allow-none "$log"
  echo "built for $architectures in $((SECONDS - start)) s"
}

# Over the floors that were built for the suites.
test_python() {
  local start=$SECONDS
  if ! python3 -c "import torch, nanobind, scikit_build_core, pytest" 2>/dev/null; then
    echo "tests/python: skipped, python3 has not all of torch, nanobind, scikit_build_core and pytest"
    return
  fi
  cmake --install "$build" --prefix "$build/installed" --component dev >"$build/python.log" 2>&1 &&
    CMAKE_PREFIX_PATH=$PWD/$build/installed python3 -m pip install --quiet --no-index --no-deps --no-build-isolation \
      --upgrade --target "$build/site" . >>"$build/python.log" 2>&1 ||
    { cat "$build/python.log" >&2; return 1; }
  (cd "$build/site" && PYTHONPATH=$PWD python3 -m pytest -q -p no:cacheprovider "$OLDPWD/tests/python" | tail -n 15) ||
    return 1
  echo "tests/python in $((SECONDS - start)) s"
}

build_suites
status=0
case $mode in
  --sanitize)
    for tool in memcheck racecheck; do
      declare -n chosen=$tool
      echo "compute-sanitizer --tool $tool"
      scripts/run_gtest_shards.py "$build" "${chosen[@]}" \
        --under "compute-sanitizer --tool $tool --error-exitcode 9 --report-api-errors no" || status=1
    done
    ;;
  *)
    test_python || status=1
    scripts/run_gtest_shards.py "$build" "${suites[@]}" || status=1
    ;;
esac
echo "$SECONDS s in all"
[[ $status -eq 0 ]] || exit "$status"
if [[ $mode == --bench ]]; then
  "$build/benchmarks/cuda/cuda_attention_bench"
  "$build/benchmarks/cuda/cuda_linear_bench"
fi
