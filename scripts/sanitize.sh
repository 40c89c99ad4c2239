#!/usr/bin/env bash
# Builds attend under a sanitizer and runs its tests: asan (AddressSanitizer and UndefinedBehaviorSanitizer) or tsan
# (ThreadSanitizer). All tests when none is named.
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

# One program's output, whole, when it has ended.
run_one() {
  local program output status=0
  program=$(find "build/$1/tests" -name "$2" -type f -executable)
  output=$("$program" --gtest_brief=1 2>&1) || status=1
  printf '%s: %s\n' "$2" "$output"
  return $status
}
export -f run_one
printf '%s\n' "$@" | xargs -P "$(nproc)" -I NAME bash -c "run_one $preset NAME"
