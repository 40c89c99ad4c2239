#!/usr/bin/env bash
# Builds attend and runs every test. The last lines are ctest's summary.
set -euo pipefail
source "$(dirname "$0")/setup.sh"
build "${ATTEND_PRESET:-release}"
ctest --preset "${ATTEND_PRESET:-release}" -j "$(nproc)" "$@"
