#!/usr/bin/env bash
# Runs attend serve on the bundled model with real clients (tests/clients): OpenAI's, Anthropic's, pydantic-ai's agents, curl, Cohere's, SGLang's benchmark,
# lm-eval, schemathesis, a browser, and misbehaving sockets.
#   scripts/check_server.sh [BUILD_FOLDER]    the attend that is built there; default: build/release
set -euo pipefail
ATTEND_EXTRA_PACKAGES="python3-venv curl openssl prometheus chromium" source "$(dirname "$0")/setup.sh"

source_dir=$PWD
build=${1:-build/release}
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

python3 -m venv "$fresh/venv"
"$fresh/venv/bin/python" -m pip install --quiet --no-compile openai==3.54.0 pytest==8.4.2 playwright==1.65.2 schemathesis==4.32.5 \
  jsonschema==4.25.1 aiohttp==3.14.5 jinja2==3.1.6 numpy==2.4.6 tenacity==9.2.1 tqdm==4.70.1 httpx==0.28.1 anthropic==2.14.0 openai-agents==0.24.0 "pydantic-ai-slim[anthropic,openai]==2.68.0"
# Installs only these clients with the dependencies above, since their other dependencies are large.
"$fresh/venv/bin/python" -m pip install --quiet --no-compile --no-deps sglang==0.5.23 lm-eval==0.4.13 cohere==7.3.1 \
  fastavro==1.13.1 tokenizers==0.23.3
libraries=$(scripts/grammar_libraries.sh)
ATTEND_BINARY=$(realpath "$build/attend") ATTEND_GRAMMAR_LIBRARY_PATH=$libraries "$fresh/venv/bin/python" -m pytest -q -o cache_dir="$fresh/cache" \
  "$source_dir/tests/clients"
