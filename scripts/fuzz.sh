#!/usr/bin/env bash
# Builds the libFuzzer targets with AddressSanitizer and UndefinedBehaviorSanitizer and runs each for SECONDS (default
# 60) or for a number of inputs, two targets concurrently. An input that fails is stored in build/fuzz/findings; run it
# again with build/fuzz/tests/fuzz/fuzz_NAME FILE.
#
#   scripts/fuzz.sh [SECONDS [NAME...]]
#   scripts/fuzz.sh 1000000x [NAME...]
#
# http_bodies runs only if it is named: it is built from the whole engine, which takes minutes.
set -euo pipefail
ATTEND_EXTRA_PACKAGES="clang libclang-rt-dev" source "$(dirname "$0")/setup.sh"
case ${1:-60} in
  *x) limit=-runs=${1%x} ;;
  *) limit=-max_total_time=${1:-60} ;;
esac
[ $# -gt 0 ] && shift
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(safetensors_header gguf_header config tokenizer text chat_template prompts utf8_stream image audio)

build fuzz "${names[@]/#/fuzz_}"
mkdir -p build/fuzz/findings
python3 scripts/make_fuzz_seeds.py build/fuzz/seeds

# The corpus of a run is kept in build/fuzz/corpus for the next. Longer inputs need more time, and targets whose state
# is a stop string or a field find their bugs in short ones.
run_one() {
  local name=$1 limit=$2 dictionary=() max_len=20000 log=build/fuzz/$1.log
  mkdir -p "build/fuzz/corpus/$name"
  case $name in
    utf8_stream) max_len=200 ;;
    http_bodies) max_len=2000 ;;
  esac
  case $name in
    text | utf8_stream) ;;
    chat_template) dictionary=(-dict=tests/fuzz/jinja.dict) ;;
    *) dictionary=(-dict=tests/fuzz/json.dict) ;;
  esac
  if nice build/fuzz/tests/fuzz/fuzz_"$name" "build/fuzz/corpus/$name" "build/fuzz/seeds/$name" \
    "$limit" -max_len="$max_len" -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 \
    "${dictionary[@]}" -artifact_prefix="build/fuzz/findings/$name-" >"$log" 2>&1; then
    echo "fuzz $name: $(awk '/number_of_executed_units/ { print $2 }' "$log") inputs, nothing found"
  else
    echo "fuzz $name: FAILED ($log)"
    tail -n 40 "$log"
    return 1
  fi
}
export -f run_one
printf '%s\n' "${names[@]}" | xargs -P 2 -I NAME bash -c "run_one NAME $limit"
