#!/usr/bin/env bash
# Builds attend and runs every test. The last lines are ctest's summary and the number of skipped tests.
set -euo pipefail
source "$(dirname "$0")/setup.sh"
build "${ATTEND_PRESET:-release}"
ctest --preset "${ATTEND_PRESET:-release}" -j "$(nproc)" "$@" | awk_by_line '
  /\*\*\*Skipped/ { skipped++ }
  /^The following tests did not run:$/ || /^\t *[0-9]+ - .* \(Skipped\)$/ { next }
  { print; fflush() }
  END { if (skipped) print skipped " of them were skipped, each with its reason: most require a GPU" }'
