#!/usr/bin/env bash
# A long life of an engine over the bundled model: short requests, cached prefixes, chunks, preemption, aborts. None leaves
# pages, rows or memory behind, and known prompts are answered right to the end. On a GPU too where there is one.
#   scripts/soak.sh [REQUESTS]        default: a million
#   scripts/soak.sh --seconds SECONDS
# Another life: ATTEND_SOAK_SEED, ATTEND_SOAK_BACKEND (attention), ATTEND_SOAK_DTYPE, ATTEND_SOAK_OVERLAP=1. SIGTERM ends
# it with its report.
set -euo pipefail
source "$(dirname "$0")/setup.sh"
build release async_engine_test
if [[ ${1:-} == --seconds ]]; then
  export ATTEND_SOAK_SECONDS=${2:?soak: --seconds needs a number}
else
  export ATTEND_SOAK_REQUESTS=${1:-1000000}
fi
build/release/tests/engine/async_engine_test --gtest_filter='*Soak*'
