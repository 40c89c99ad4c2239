#!/usr/bin/env bash
# Installs missing Debian packages that attend is built with. Sourced by demo.sh and test.sh; may be run by itself. On
# other distributions it prints the list and stops.
set -euo pipefail

attend_packages=(
  g++ cmake ninja-build pkg-config
  nlohmann-json3-dev libcli11-dev libfmt-dev
  libjpeg62-turbo-dev libpng-dev libwebp-dev libsndfile1-dev libsoxr-dev
  libmp3lame-dev  # static programs link it through libsndfile, whose package does not depend on it
  libpcre2-dev libutf8proc-dev libboost-dev libssl-dev libedit-dev
  libgtest-dev libgmock-dev librapidcheck-dev
  ${ATTEND_EXTRA_PACKAGES:-}
)

install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "attend builds with these packages (Debian's names); install them and run this again:" >&2
    printf '  %s\n' "${attend_packages[@]}" >&2
    echo "To skip this check: ATTEND_SKIP_PACKAGES=1" >&2
    exit 1
  fi
  local missing=() package
  for package in "${attend_packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  echo "installing: ${missing[*]}"
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# With a compiler cache, unchanged files are not compiled again, also in other clones.
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache} CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
  export CMAKE_CUDA_COMPILER_LAUNCHER=${CMAKE_CUDA_COMPILER_LAUNCHER-ccache}
  export CCACHE_BASEDIR=${CCACHE_BASEDIR-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR-1}
fi

# build PRESET [TARGET...]: configures and builds; prints only errors, and a line at the end.
build() {
  local preset=$1 start=$SECONDS
  shift
  [ -t 1 ] || echo "building preset $preset (build/build.log)"
  cmake --preset "$preset" >"$(log_file configure)" 2>&1 || { cat "$(log_file configure)" >&2; exit 1; }
  cmake --build --preset "$preset" ${1:+--target "$@"} | tee "$(log_file build)" | build_progress
  echo "built preset $preset in $((SECONDS - start)) s"
}

log_file() { mkdir -p build && echo "build/$1.log"; }

# awk that handles each line when it arrives. mawk, Debian's awk, otherwise reads 4 KB at a time.
awk_by_line() {
  if awk -W version 2>&1 </dev/null | grep -q mawk; then awk -W interactive "$@"; else awk "$@"; fi
}

# Prints ninja's lines over one another on a terminal; elsewhere failures, and a line for each tenth of the build.
# ptxas' output for each kernel is only written to the log.
build_progress() {
  local kernels='^ptxas info|bytes stack frame'
  if [ -t 1 ]; then
    grep -vE --line-buffered "$kernels" | awk_by_line '{ if ($0 ~ /^\[/) printf "\r\033[K%.110s", $0; else print } END { printf "\r\033[K" }'
  else
    grep -vE --line-buffered "$kernels" | awk_by_line -F '[][/]' '
      !/^\[[0-9]+\/[0-9]+\]/ { print; fflush(); next }
      { tenth = int(10 * $2 / $3); if (tenth > shown && $3 >= 20) { print 10 * tenth " % of " $3 " steps"; fflush(); shown = tenth } }'
  fi
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -n "${ATTEND_SKIP_PACKAGES:-}" ] || install_packages
