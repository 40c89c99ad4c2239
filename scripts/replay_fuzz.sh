#!/usr/bin/env bash
# Runs the fuzz targets on their seeds and NUM changed copies of them (default 2000), built by gcc with AddressSanitizer
# and UndefinedBehaviorSanitizer together with the tests, within CI's time. scripts/fuzz.sh searches with libFuzzer.
#
#   scripts/replay_fuzz.sh [NUM [NAME...]]
set -euo pipefail
source "$(dirname "$0")/setup.sh"
num=${1:-2000}
[ $# -gt 0 ] && shift
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(safetensors_header gguf_header config tokenizer text chat_template prompts utf8_stream http_bodies image audio)

build asan "${names[@]/#/fuzz_}"
python3 scripts/make_fuzz_seeds.py build/asan/seeds
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

run_one() {
  local name=$1 output
  if output=$(timeout 600 build/asan/tests/fuzz/fuzz_"$name" build/asan/seeds/"$name" "$2" 2>&1); then
    echo "fuzz $name: ${output##*$'\r'}"
  else
    echo "fuzz $name: FAILED"
    tail -n 40 <<<"$output"
    return 1
  fi
}
export -f run_one
printf '%s\n' "${names[@]}" | xargs -P 2 -I NAME bash -c "run_one NAME $num"
