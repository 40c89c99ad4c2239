#!/usr/bin/env bash
# What is too long for CI of the tests: the README's build with every test; a build of each file by itself, which proves
# that it includes what it needs; every test under AddressSanitizer, those of the engine under ThreadSanitizer.
#   scripts/nightly_tests.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# Tests of grammars are skipped where the libraries are not.
ATTEND_GRAMMAR_LIBRARY_PATH=$(scripts/grammar_libraries.sh)
export ATTEND_GRAMMAR_LIBRARY_PATH
scripts/test.sh
(source scripts/setup.sh && build each-file)
scripts/sanitize.sh asan
scripts/sanitize.sh tsan base_test async_engine_test engine_test
