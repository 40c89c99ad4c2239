#!/usr/bin/env bash
# Runs an engine for a long time on the bundled model: short requests, cached prefixes, chunks, preemption, aborts. No
# pages, rows or memory may leak, and known prompts must be answered correctly until the end. Uses a GPU if available.
#   scripts/soak.sh [REQUESTS]        default: a million
#   scripts/soak.sh --seconds SECONDS
# Other settings: ATTEND_SOAK_SEED, ATTEND_SOAK_BACKEND (attention), ATTEND_SOAK_DTYPE, ATTEND_SOAK_OVERLAP=1. SIGTERM
# ends it with its report.
set -euo pipefail
source "$(dirname "$0")/setup.sh"
build release async_engine_test
if [[ ${1:-} == --seconds ]]; then
  export ATTEND_SOAK_SECONDS=${2:?soak: --seconds needs a number}
else
  export ATTEND_SOAK_REQUESTS=${1:-1000000}
fi
build/release/tests/engine/async_engine_test --gtest_filter='*Soak*'
