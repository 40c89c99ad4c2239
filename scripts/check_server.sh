#!/usr/bin/env bash
# Runs attend serve on the bundled model under real clients (tests/clients): OpenAI's, curl, SGLang's benchmark, lm-eval's,
# schemathesis, a browser, and sockets that misbehave.
#   scripts/check_server.sh [BUILD_FOLDER]    of the attend that is built there; build/release when not given
set -euo pipefail
ATTEND_EXTRA_PACKAGES="python3-venv curl openssl prometheus chromium" source "$(dirname "$0")/setup.sh"

source_dir=$PWD
build=${1:-build/release}
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

python3 -m venv "$fresh/venv"
"$fresh/venv/bin/python" -m pip install --quiet --no-compile openai==3.54.0 pytest==8.4.2 playwright==1.65.2 schemathesis==4.32.5 \
  jsonschema==4.25.1 aiohttp==3.14.5 jinja2==3.1.6 numpy==2.4.6 tenacity==9.2.1 tqdm==4.70.1
# Their clients alone, with what these use of the above: what the packages ask for otherwise is large.
"$fresh/venv/bin/python" -m pip install --quiet --no-compile --no-deps sglang==0.5.23 lm-eval==0.4.13
libraries=$(scripts/grammar_libraries.sh)
ATTEND_BINARY=$(realpath "$build/attend") ATTEND_GRAMMAR_LIBRARY_PATH=$libraries "$fresh/venv/bin/python" -m pytest -q -o cache_dir="$fresh/cache" \
  "$source_dir/tests/clients"
