#!/usr/bin/env bash
# Builds attend and shows a real model answer: the bundled attend-tiny over prompts whose answers are known.
# Fails when fewer than 90 % are right. Arguments are flags of attend generate.
set -euo pipefail
source "$(dirname "$0")/setup.sh"
build release attend_cli

output=$(mktemp)
trap 'rm -f "$output"' EXIT
build/release/attend generate --model-path models/attend-tiny --prompts-file models/attend-tiny/demo_prompts.jsonl \
  --max-new-tokens 64 "$@" 2>&1 | tee "$output"

# The last line is "answers: N of M right".
awk '/^answers: / { right = $2; all = $4 } END { exit !(all >= 12 && right >= 0.9 * all) }' "$output" ||
  { echo "demo: fewer than 90 % of at least 12 answers are right" >&2; exit 1; }
