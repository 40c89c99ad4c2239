#!/usr/bin/env bash
# Builds the libFuzzer targets under AddressSanitizer and UndefinedBehaviorSanitizer and runs each for SECONDS (60 when
# not given), two at a time. An input that breaks one stays in build/fuzz/findings; run it again with
# build/fuzz/tests/fuzz/fuzz_NAME FILE.
#
#   scripts/fuzz.sh [SECONDS [NAME...]]
#
# http_bodies has to be named: it is built of the whole engine, which takes minutes.
set -euo pipefail
ATTEND_EXTRA_PACKAGES="clang libclang-rt-dev" source "$(dirname "$0")/setup.sh"
seconds=${1:-60}
[ $# -gt 0 ] && shift
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(safetensors_header config tokenizer text chat_template prompts utf8_stream)

build fuzz "${names[@]/#/fuzz_}"
mkdir -p build/fuzz/findings
python3 scripts/make_fuzz_seeds.py build/fuzz/seeds

# What a run learns stays in build/fuzz/corpus for the next.
run_one() {
  local name=$1 seconds=$2 dictionary=() log=build/fuzz/$1.log
  mkdir -p "build/fuzz/corpus/$name"
  case $name in
    text | utf8_stream) ;;
    chat_template) dictionary=(-dict=tests/fuzz/jinja.dict) ;;
    *) dictionary=(-dict=tests/fuzz/json.dict) ;;
  esac
  if nice build/fuzz/tests/fuzz/fuzz_"$name" "build/fuzz/corpus/$name" "build/fuzz/seeds/$name" \
    -max_total_time="$seconds" -max_len=20000 -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 \
    "${dictionary[@]}" -artifact_prefix="build/fuzz/findings/$name-" >"$log" 2>&1; then
    echo "fuzz $name: $(awk '/number_of_executed_units/ { print $2 }' "$log") inputs, nothing found"
  else
    echo "fuzz $name: FAILED ($log)"
    tail -n 40 "$log"
    return 1
  fi
}
export -f run_one
printf '%s\n' "${names[@]}" | xargs -P 2 -I NAME bash -c "run_one NAME $seconds"
