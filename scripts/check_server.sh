#!/usr/bin/env bash
# Runs attend serve on the bundled model under real clients (tests/clients): OpenAI's, curl, SGLang's benchmark,
# a browser, and sockets that misbehave.
#   scripts/check_server.sh [BUILD_FOLDER]    of the attend that is built there; build/release when not given
set -euo pipefail
ATTEND_EXTRA_PACKAGES="python3-venv curl openssl prometheus chromium" source "$(dirname "$0")/setup.sh"

source_dir=$PWD
build=${1:-build/release}
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

python3 -m venv "$fresh/venv"
"$fresh/venv/bin/python" -m pip install --quiet openai==3.54.0 pytest==8.4.2 playwright==1.65.2
# Its compiled benchmark client alone: what sglang asks for is not needed.
"$fresh/venv/bin/python" -m pip install --quiet --no-deps sglang==0.5.23
ATTEND_BINARY=$(realpath "$build/attend") "$fresh/venv/bin/python" -m pytest -q -o cache_dir="$fresh/cache" \
  "$source_dir/tests/clients"
