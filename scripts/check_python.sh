#!/usr/bin/env bash
# Installs the Python package into a new environment and runs tests/python there.
#   scripts/check_python.sh [BUILD_FOLDER]    uses the attend built there; without it, builds it from the sources too
# Further packages for the tests, such as torch: ATTEND_PYTHON_EXTRA="torch jax".
set -euo pipefail
ATTEND_EXTRA_PACKAGES="python3-venv python3-dev" source "$(dirname "$0")/setup.sh"

source_dir=$PWD
build=${1:-}
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

fail() { echo "check_python: $*" >&2; exit 1; }
quietly() { "$@" >"$fresh/log" 2>&1 || { cat "$fresh/log" >&2; fail "$*"; }; }

quietly python3 -m venv "$fresh/venv"
python=$fresh/venv/bin/python
prefix=()
if [ -n "$build" ]; then
  quietly cmake --install "$build" --prefix "$fresh/attend" --component dev
  quietly cmake --install "$build" --prefix "$fresh/attend" --component runtime
  prefix=(CMAKE_PREFIX_PATH="$fresh/attend")
fi
# shellcheck disable=SC2086  # extra packages are separate words
quietly env "${prefix[@]}" "$python" -m pip install --quiet ".[test]" ${ATTEND_PYTHON_EXTRA:-}

# Runs outside the source tree, so that the installed package is tested.
cd "$fresh"
"$python" -m pytest -q -p no:cacheprovider "$source_dir/tests/python" | tee "$fresh/tests.log" | grep -vE '^[.sx]+ +\[' ||
  fail "tests/python"
check_types() { "$python" -m mypy --cache-dir=/dev/null --disable-error-code import-not-found "$@"; }
# Drop-in modules have the untyped signatures of the modules that they replace, and without torch its classes have any
# type. Everything else is checked strictly.
check_types --strict --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls --allow-any-generics --allow-subclassing-any -p attend || fail "types of attend"
check_types --check-untyped-defs "$source_dir"/examples/*.py || fail "types of the examples"
"$python" "$source_dir/examples/attend_over_numpy.py" || fail "examples/attend_over_numpy.py"
for command in "$fresh/venv/bin/attend" "$python -m attend"; do
  answer=$($command generate --model-path "$source_dir/models/attend-tiny" --prompt 'recall: sun=42, river=17; river=' 2>&1) ||
    fail "$command: $answer"
  grep -q '^17$' <<<"$answer" || fail "$command answered '$answer': not 17"
done
answer=$("$python" "$source_dir/examples/llm.py" "$source_dir/models/attend-tiny" 2>&1) || fail "examples/llm.py: $answer"
grep -q 'river= -> 17$' <<<"$answer" || fail "examples/llm.py answered '$answer': not 17"
