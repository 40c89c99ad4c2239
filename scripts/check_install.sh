#!/usr/bin/env bash
# Installs a build into a new folder, once with static libraries and once with libattend.so, and builds and runs
# examples/ with each, through CMake and pkg-config, without access to the source tree. gpu_decode runs if the machine
# has a GPU and the build has kernels for it; otherwise it must report what is missing.
#   scripts/check_install.sh [BUILD_FOLDER]    default: build/release; must be built
set -euo pipefail
cd "$(dirname "$0")/.."

source_dir=$PWD
build=${1:-build/release}
jobs=$(nproc)
model=$source_dir/models/attend-tiny
prompt='recall: sun=42, river=17, fox=80; river='
gpu_skip=  # reason why gpu_decode did not run
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

fail() { echo "check_install: $*" >&2; exit 1; }
quietly() { "$@" >"$fresh/log" 2>&1 || { cat "$fresh/log" >&2; fail "$*"; }; }

run_examples() { # FOLDER
  "$1/paged_decode" >/dev/null || fail "$1/paged_decode"
  local answer output
  if ! output=$("$1/gpu_decode" 2>&1); then
    grep -qE '^gpu_decode: device cuda:0: .*(without CUDA|no NVIDIA driver|no CUDA-capable device|has 0 GPUs)' <<<"$output" ||
      fail "$1/gpu_decode: $output"
    gpu_skip=" (skipped: $output)"
  fi
  answer=$("$1/generate" "$model" "$prompt" 2>/dev/null) || fail "$1/generate"
  [ "$answer" = "${prompt}17" ] || fail "$1/generate answered '$answer': not 17"
  answer=$("$1/own_backend" "$model" "$prompt") || fail "$1/own_backend"
  [ "$answer" = 17 ] || fail "$1/own_backend answered '$answer': not 17"
  answer=$("$1/async_generate" "$model" "$prompt" "$prompt" 2>/dev/null) || fail "$1/async_generate"
  [ "$answer" = $'17\n17' ] || fail "$1/async_generate answered '$answer': not 17, twice"
}

# Checks what consumers can see: no headers of private dependencies, only installed files.
check_headers() { # PREFIX
  ! grep -rnE '#\s*include\s+[<"](fmt|nlohmann|CLI|boost|pcre2|utf8proc|jpeglib|png|webp|sndfile|soxr|openssl)' "$1/include" ||
    fail "an installed header includes a private dependency"
  (cd "$1/include" && find attend -name '*.h' | sort | sed 's/.*/#include <&>/') >"$fresh/all.cc"
  quietly g++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I "$1/include" "$fresh/all.cc"
}

check_package() { # PREFIX
  mkdir -p "$fresh/package"
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(package LANGUAGES CXX)\nfind_package(attend %s)\n' \
    "9.9 REQUIRED" >"$fresh/package/CMakeLists.txt"
  ! cmake -S "$fresh/package" -B "$fresh/package/build" -DCMAKE_PREFIX_PATH="$1" >/dev/null 2>&1 ||
    fail "version 9.9 is found"
  sed -i 's/9.9 REQUIRED/REQUIRED COMPONENTS kernels kitchen/' "$fresh/package/CMakeLists.txt"
  ! cmake -S "$fresh/package" -B "$fresh/package/build" -DCMAKE_PREFIX_PATH="$1" >"$fresh/log" 2>&1 ||
    fail "component kitchen is found"
  grep -q "component kitchen: attend has base, tensor, kernels" "$fresh/log" || fail "the error does not list the components"
  rm -rf "$fresh/package"
}

# Checks that the runtime component runs and contains no development files.
check_runtime() { # PREFIX
  quietly cmake --install "$build" --prefix "$1" --component runtime
  "$1/bin/attend" --version | grep -q '^attend [0-9]' || fail "attend --version"
  for file in man/man1/attend-bench-model.1 bash-completion/completions/attend zsh/site-functions/_attend fish/vendor_completions.d/attend.fish; do
    grep -q 'prompt.*tokens' "$1/share/$file" || fail "$file is missing or names no flag"
  done
  ! find "$1" -name '*.h' -o -name '*.a' -o -name '*.cmake' -o -name '*.pc' | grep . || fail "the runtime component contains development files"
}

# Checks that libattend.so exports the declarations of installed headers, and no private symbols.
check_symbols() { # LIBRARY
  local shown
  shown=$(nm -DC --defined-only "$1" | awk '$2 ~ /[TBDRV]/' | cut -d' ' -f3-)
  grep -q '^attend::Engine::step' <<<"$shown" || fail "$1 does not export attend::Engine"
  grep -q '^attend::create_kernel_backend' <<<"$shown" || fail "$1 does not export what a custom backend needs"
  ! grep -E '^(vtable for |typeinfo (name )?for )?(fmt|nlohmann|attend::kernels::cpu|attend::tokenizer)::' <<<"$shown" ||
    fail "$1 exports private symbols"
}

for shared in OFF ON; do
  [ $shared = ON ] && kind=shared || kind=static
  prefix=$fresh/$kind
  quietly cmake -S . -B "$build" -DBUILD_SHARED_LIBS=$shared
  [ $shared = OFF ] || quietly cmake --build "$build" --target attend_shared -j "$jobs"
  quietly cmake --install "$build" --prefix "$prefix"
  check_headers "$prefix"
  check_package "$prefix"

  cp -r examples "$fresh/examples"
  quietly cmake -G Ninja -S "$fresh/examples" -B "$fresh/$kind-build" -DCMAKE_PREFIX_PATH="$prefix"
  quietly cmake --build "$fresh/$kind-build" -j "$jobs"
  run_examples "$fresh/$kind-build"

  pc_dir=$(dirname "$(find "$prefix" -name attend.pc)")
  [ $shared = ON ] && pc_flags=() || pc_flags=(--static)
  flags=$(PKG_CONFIG_PATH=$pc_dir pkg-config "${pc_flags[@]}" --cflags --libs attend)
  mkdir "$fresh/$kind-pc"
  for example in paged_decode gpu_decode generate async_generate own_backend; do
    # shellcheck disable=SC2086  # flags are separate words
    quietly g++ "$fresh/examples/$example.cpp" -o "$fresh/$kind-pc/$example" $flags -Wl,-rpath,"$(dirname "$pc_dir")"
  done
  run_examples "$fresh/$kind-pc"
  rm -rf "$fresh/examples"

  check_runtime "$fresh/$kind-runtime"
  if [ $shared = ON ]; then
    library=$(find "$prefix" -name libattend.so)
    check_symbols "$library"
    ! readelf -d "$fresh/$kind-build/generate" | grep -E 'NEEDED.*(fmt|pcre2|utf8proc)' ||
      fail "a program on libattend.so links private dependencies of libattend.so"
  fi
  echo "installed, $kind: $(du -sh --apparent-size "$prefix" | cut -f1), examples run$gpu_skip"
done
quietly cmake -S . -B "$build" -DBUILD_SHARED_LIBS=OFF
