#!/usr/bin/env bash
# Builds and runs every GPU test on a machine with a GPU; elsewhere these tests are skipped and counted. Also fails if a
# kernel spills registers or contains copies that ptxas compiled wrongly. A table of suites is printed last.
#   scripts/gpu_test.sh              build and test: the C++ suites, and tests/python if python3 has torch
#   scripts/gpu_test.sh --sanitize   build, then the four tools of compute-sanitizer on small cases of every kernel
#   scripts/gpu_test.sh --bench      build and test, then time attention and dense layers
#   scripts/gpu_test.sh --bars       build, then scripts/gpu_benchmarks.py with its targets; about eight minutes
# ATTEND_CUDA_ARCHITECTURES: architectures to build for; default: that of the GPU. ATTEND_SKIP_PACKAGES=1 skips the check
# of installed packages.
set -euo pipefail
usage() { sed -n '2,9s/^# \?//p' "$0"; }
mode=${1:-}
case $mode in
  "" | --bench | --bars) ;;
  --sanitize)
    command -v compute-sanitizer >/dev/null || {
      echo "gpu_test: --sanitize needs compute-sanitizer on the PATH: package cuda-sanitizer-13-0 for CUDA 13.0" >&2
      exit 2
    } ;;
  --help | -h) usage; exit ;;
  *) usage >&2; exit 2 ;;
esac
source "$(dirname "$0")/setup.sh"  # changes the working directory

# CMake's name of the first GPU's architecture; Hopper also has architecture-specific instructions.
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d . || true)
native=${capability:-90}-real
[[ $native == 90-real ]] && native="90a-real;90-real"
architectures=${ATTEND_CUDA_ARCHITECTURES:-$native}
build=build/gpu
[[ $mode == --sanitize ]] && build+=-sanitize
log=$build/build.log
[[ -n $capability ]] || echo "gpu_test: nvidia-smi reports no GPU; building everything, log in $log; GPU tests are skipped"

# Programs with only GPU tests, and the GPU tests of those that support both devices.
suites=(
  kernels_cuda_test
  dense_gpu_test
  "dense_kernels_test=*gpu*"
  "edit_logits_test=*Gpu*"
  "moe_test=*gpu*:*Gpu*"
  "recurrent_test=*gpu*"
  "tensor_test=*gpu*:*Gpu*"
  "backends_conformance_test=*gpu*"
  "kv_test=*gpu*"
  "engine_test=*gpu*:*Gpu*"
  "exec_test=*OnGpu*"
  "model_drafter_test=*Gpu"
  "embedder_test=*Gpu*"
  "deterministic_test=*gpu*"
  "recurrent_models_test=*gpu*"
  "adapters_test=*gpu*"
  "tiny_model_test=*gpu*"
  "model_golden_test=*gpu*"
  "vision_kernels_test=*gpu*"
  "vision_test=*gpu*"
  "images_test=*gpu*"
  cli_test
)
# Cases of --sanitize: tools, program, tests. m is memcheck, r racecheck, s synccheck, i initcheck. R and S are skipped
# if compute-sanitizer is older than 2026.4, which reports false errors: job slots that barriers hand over and return,
# and arrivals by "cp.async.mbarrier.arrive".
sanitized=(
  # Attention: every instance of the sm80 kernels with every height of row tiles, plans, merges; MLA; prefill on sm90.
  "m    kernels_cuda_test CudaAttentionClusters.*:CudaAttention.SharesTheMerge*"
  "m    kernels_cuda_test CudaSingleRequestDecode.*:CudaPrefillFp8.*:CudaAttention.MultipliesByDescales*"
  "mi   kernels_cuda_test CudaPrefill.ProducesTheSameBitsThirtyTimesRowByRow"
  "mrsi kernels_cuda_test Each/CudaAttentionInstance.*:CudaMla.ServesMlaLayersInAFewSmallCases"
  "mRSi kernels_cuda_test CudaPrefill.ConformsInAFewSmallCases:CudaPrefill.ConformsInAFewSmallCasesOfE4m3"
  # Many keys, ends of splits, and all kinds of indices.
  "m    kernels_cuda_test Every/CudaAttentionPart.*/0:Every/CudaPrefillPart.*/0:CudaAttention.*ManyFixedSplits"
  # Graphs, replayed for many lengths.
  "m    kernels_cuda_test Each/CudaStep.*ForAllLengths/Decode:Each/CudaStep.*ForAllLengths/VerifyOfManyHeads:Each/CudaStep.*ForAllLengths/Latent"
  "m    kernels_cuda_test CudaPrefixReady.*:CudaInlinePlan.*"
  "m    engine_test       *ReplayOnGpu*/triton_bfloat16"
  # Recurrent layers: chunks and decode of a gated delta net and of Mamba-2.
  "m    engine_test       Recurrent/GoldenModel.*InChunks/qwen3_next_grouped_gpu:Recurrent/GoldenModel.*InChunks/bamba_mamba2_gpu"
  # MLA and verify, in which CTAs share work tiles; experts in mxfp4, direct and tiled.
  "mi   kernels_cuda_test Each/CudaStep.*AHundredTimes/Latent*:Each/CudaStep.*AHundredTimes/Verify*:CudaMla.HasTheSameBits*"
  "mi   moe_test          *MxFp4MatchesFloat64*"
  # Store, merge, arrays of a batch, pages of host memory, rows for other interfaces.
  "mrsi kernels_cuda_test CudaMerge.*:CudaStore.*:CudaMetadata.*:CudaBatchArrays.*:Each/CopyPages.*gpu:Each/CudaRopeRows.*"
  # Sampling. racecheck needs more than a minute for clusters of four and eight; clusters of two run the same code.
  "mrsi kernels_cuda_test Each/CudaSamplingOfRows.*/2:Each/CudaSamplingOfRows.*/3:CudaSampling.SplitsABin*:CudaSampling.MarksARow*"
  "msi  kernels_cuda_test Each/CudaSamplingOfRows.*/0:Each/CudaSamplingOfRows.*/1:CudaSampling.SamplesTheTokenOfTheCpuFromATiny*"
  "m    kernels_cuda_test CudaSampling.CutsLikeTheCpu*"
  "mrsi edit_logits_test  *Gpu"
  # Dense layers: wgmma in clusters of one to eight, deterministic GEMMs, few rows with norms, SiLU and sums, q, k and
  # v.
  "mrsi dense_gpu_test    Each/Sm90SwapAbGemmOfShape.*/2:Each/Sm90SwapAbGemmOfShape.*/3:InvariantLinear.ATileOfRows*"
  "mrsi dense_gpu_test    FusedLinear.IsBatchInvariantForFewRowsOnGpus*:Each/QkvOfHeads.*/1"
  "ms   dense_gpu_test    Each/Sm90SwapAbGemmOfHeight.*/7:Each/QkvOfHeads.*/4"
  # Quantized weights: 8 bits with wgmma, 4 bits with few rows; fp8 by fp8.
  "mi   dense_gpu_test    Sm90SwapAbQuantized.AddToExistingOutput:Sm90SwapAbQuantized.ApplyGate:SkinnyQuantized.NormalizeInputs:Sm90ScaledQuantized.ApplyGate"
  # Deferred norms; the gated-MLP GEMM, in which pairs of CTAs share x and weights.
  "msi  dense_gpu_test    Sm90Gemv.MatchesFloat64WithBiasAndExistingOutput*"
  "mrsi dense_gpu_test    LowRankGpu.GivesATokenTheSameBits*:LowRankGpu.AppliesADeferredNorm:LowRankGpu.ServesAnyAdapters*"
  "ms   dense_gpu_test    Sm90DeferredNorm.StoresResidual*:Sm90GatedMlpGemm.WritesOnlyItsColumnsOfAWiderTensor*"
  # Recurrent layers: convolution, scan with and without chunks, norms.
  "mrsi recurrent_test    CausalConv.*/gpu:SelectiveScan.*/gpu:SelectiveScanHalf.NormalizesGated*/gpu*"
  "mRsi recurrent_test    SelectiveScanHalf.Batches*/gpu*:SelectiveScanHalf.ScansMany*/gpu*"
  "ms   recurrent_test    GpuDeltaToken.*"
  "mri  recurrent_test    GatedDelta.BatchesRequests*/gpu:GatedDeltaHalf.ComputesChunksAndSteps*/gpu_bf16:GatedDeltaHalf.NormalizesEachHead*/gpu_f16"
  # Other operations of a layer; rows and heads that are loaded in groups, and others.
  "m    dense_gpu_test    AlignedRows.NormsAndActivationsMatchUnalignedRows*:AlignedRows.HeadsMatchUnalignedRowsInNormRopeStore*"
  "mrsi dense_gpu_test    AddRmsNorm.*:SiluMul.*:Rope.Rotates*:GatherRows.*:FillRandom.HasTheSameBitsOnAGpu:Embedding.Copies*"
)

build_suites() {
  local start=$SECONDS flags=-Xptxas=-v targets=("${suites[@]%%=*}")
  case $mode in
    --sanitize)
      flags+=" -lineinfo"  # for reports; does not change machine code
      targets=(kernels_cuda_test dense_gpu_test engine_test moe_test recurrent_test)
      ;;
    --bench) targets+=(cuda_attention_bench cuda_linear_bench) ;;
    --bars) targets=(cuda_attention_bench attend_cli) ;;
  esac
  mkdir -p "$build"
  cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DATTEND_CUDA=ON -DATTEND_BENCHMARKS=ON \
    -DATTEND_CUDA_ARCHITECTURES="$architectures" -DCMAKE_CUDA_FLAGS="$flags" >"$build/configure.log" 2>&1 ||
    { cat "$build/configure.log" >&2; exit 1; }
  cmake --build "$build" --target "${targets[@]}" >"$log" 2>&1 || { grep -E -A 20 "error|FAILED" "$log" >&2; exit 1; }
  scripts/check_spills.py --allow-none "$log"
  if command -v cuobjdump >/dev/null; then scripts/check_copies.py "$build"; fi
  echo "built for $architectures in $((SECONDS - start)) s"
}

# Runs the Python tests with the libraries that were built for the suites.
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

# Prints PROGRAM=TESTS of the rows of `sanitized` that have a tool with one of these letters.
chosen_for() {
  local row tools program tests
  for row in "${sanitized[@]}"; do
    read -r tools program tests <<<"$row"
    if [[ $tools =~ [$1] ]]; then echo "$program=$tests"; fi
  done
}

sanitize() {
  local version tool letters chosen status=0 seconds_each=150
  version=$(compute-sanitizer --version | sed -n 's/^Version \([0-9.]*\).*/\1/p')
  for tool in memcheck racecheck synccheck initcheck; do
    letters=${tool:0:1}
    if printf '%s\n' 2026.4 "$version" | sort --version-sort --check=quiet; then letters+=${letters^}; fi
    mapfile -t chosen < <(chosen_for "$letters")
    echo "compute-sanitizer $version --tool $tool"
    scripts/run_gtest_shards.py "$build" "${chosen[@]}" --under "timeout --kill-after 5 $seconds_each \
      compute-sanitizer --tool $tool --error-exitcode 9 --report-api-errors no --max-connections 256" || status=1
  done
  return "$status"
}

build_suites
status=0
case $mode in
  --sanitize) sanitize || status=1 ;;
  --bars) scripts/gpu_benchmarks.py "$build" || status=1 ;;
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
