#!/usr/bin/env bash
# Tests that are too long for CI: the README's build with every test; 10,000 random runs with draft models; 100,000
# requests over three tiers of the prefix cache; a build of each file by itself, which proves that it includes what it
# needs; every test under AddressSanitizer, and the engine's tests under ThreadSanitizer.
#   scripts/nightly_tests.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# Grammar tests are skipped without these libraries.
ATTEND_GRAMMAR_LIBRARY_PATH=$(scripts/grammar_libraries.sh)
export ATTEND_GRAMMAR_LIBRARY_PATH
scripts/test.sh
# Eleven cases.
ATTEND_TIER_REQUESTS=10000 build/release/tests/engine/hierarchical_cache_test --gtest_filter='*Storm*'
ATTEND_DRAFT_RUNS=10000 build/release/tests/engine/model_drafter_test --gtest_filter='*RandomRuns*'
(source scripts/setup.sh && build each-file)
scripts/sanitize.sh asan
scripts/sanitize.sh tsan base_test async_engine_test engine_test hierarchical_cache_test model_drafter_test
