#!/usr/bin/env bash
# Many short requests on the CPU's tiny model, a part of them aborted: none leaves pages, rows or memory behind.
#   scripts/soak.sh [REQUESTS]    default: a million
set -euo pipefail
source "$(dirname "$0")/setup.sh"
build release async_engine_test
ATTEND_SOAK_REQUESTS=${1:-1000000} build/release/tests/engine/async_engine_test --gtest_filter='*ManyShortRequests'
