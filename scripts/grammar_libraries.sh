#!/usr/bin/env bash
# Installs the packages with the libraries that compile grammars into build/grammar, and prints that folder: for tests,
# and for ATTEND_GRAMMAR_LIBRARY_PATH. The libraries are loaded without Python, so the packages' dependencies are not
# needed.
set -euo pipefail
ATTEND_EXTRA_PACKAGES=python3-venv source "$(dirname "$0")/setup.sh" >&2

folder=$PWD/build/grammar
packages=(xgrammar==0.2.8 apache-tvm-ffi==0.1.15.post2)
if [ "$(cat "$folder/packages" 2>/dev/null)" != "${packages[*]}" ]; then
  fresh=$(mktemp -d)
  trap 'rm -rf "$fresh"' EXIT
  python3 -m venv "$fresh/venv"
  rm -rf "$folder"
  mkdir -p "$folder"
  "$fresh/venv/bin/python" -m pip install --quiet --no-deps --disable-pip-version-check --target "$folder" "${packages[@]}" >&2
  echo "${packages[*]}" >"$folder/packages"
fi
echo "$folder"
