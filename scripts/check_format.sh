#!/usr/bin/env bash
# Checks formatting with clang-format 14, and that no file contains conflict markers.
set -euo pipefail
cd "$(dirname "$0")/.."
if git grep -nE '^(<{7}|>{7}) ' >&2; then exit 1; fi
git ls-files '*.h' '*.cc' '*.cpp' '*.cu' '*.cuh' | xargs clang-format --dry-run --Werror
echo "format: clean"
