#!/usr/bin/env bash
# Checks that clang-format 14 would change nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files '*.h' '*.cc' '*.cpp' '*.cu' '*.cuh' | xargs clang-format --dry-run --Werror
echo "format: clean"
