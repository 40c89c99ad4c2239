#!/usr/bin/env bash
# Builds attend with a sanitizer and runs its tests: asan (AddressSanitizer and UndefinedBehaviorSanitizer) or tsan
# (ThreadSanitizer). Runs all tests if none is named.
#
#   scripts/sanitize.sh asan|tsan [TEST_PROGRAM...]
set -euo pipefail
source "$(dirname "$0")/setup.sh"
preset=${1:?"usage: scripts/sanitize.sh asan|tsan [TEST_PROGRAM...]"}
shift
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

build "$preset" "$@"
if [ $# -eq 0 ]; then
  ctest --preset "$preset" -j "$(nproc)"
  exit
fi

# Runs one shard of a program, and prints its complete output at its end.
run_shard() {
  local preset=$1 shards=$2 name=$3 shard=$4 program output status=0
  program=$(find "build/$preset/tests" -name "$name" -type f -executable)
  output=$(GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard "$program" --gtest_brief=1 2>&1) || status=1
  printf '%s, %s of %s: %s\n' "$name" "$((shard + 1))" "$shards" "$output"
  return $status
}
export -f run_shard
# More shards than concurrent jobs, since tests differ in length.
shards=$((4 * $(nproc)))
for name in "$@"; do
  for ((shard = 0; shard < shards; ++shard)); do echo "$name $shard"; done
done | xargs -P "$(nproc)" -L 1 bash -c 'run_shard "$@"' run_shard "$preset" "$shards"
