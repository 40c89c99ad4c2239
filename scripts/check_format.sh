#!/usr/bin/env bash
# Checks that clang-format 14 would change nothing, and that no file holds what git marks a conflict with.
set -euo pipefail
cd "$(dirname "$0")/.."
if git grep -nE '^(<{7}|>{7}) ' >&2; then exit 1; fi
git ls-files '*.h' '*.cc' '*.cpp' '*.cu' '*.cuh' | xargs clang-format --dry-run --Werror
echo "format: clean"
