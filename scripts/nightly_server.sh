#!/usr/bin/env bash
# Tests of attend serve that are too long for CI: five minutes of random load, schemathesis with many examples, lm-eval,
# which must find the accuracy of attend generate, and a million inputs for each fuzz target of a server's input.
#   scripts/nightly_server.sh [BUILD_FOLDER]    the attend that is built there; default: build/release
set -euo pipefail
ATTEND_EXTRA_PACKAGES="python3-venv curl" source "$(dirname "$0")/setup.sh"

binary=$(realpath "${1:-build/release}/attend")
fresh=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$fresh"' EXIT

python3 -m venv "$fresh/clients"
"$fresh/clients/bin/python" -m pip install --quiet openai==3.54.0 pytest==8.4.2 schemathesis==4.32.5
ATTEND_BINARY=$binary ATTEND_STORM_SECONDS=300 ATTEND_SCHEMA_EXAMPLES=100 "$fresh/clients/bin/python" -m pytest -q -s \
  -p no:cacheprovider tests/clients/test_storm.py tests/clients/test_schema.py

python3 -m venv "$fresh/lm-eval"
"$fresh/lm-eval/bin/python" -m pip install --quiet 'lm-eval[api]==0.4.13' transformers==5.23.0
: >"$fresh/log"
"$binary" serve --model-path models/attend-tiny --served-model-name tiny --port 0 2>"$fresh/log" &
server=$!
until url=$(grep -o "ready at http[^ ]*" "$fresh/log"); do kill -0 "$server" && sleep 0.1; done
HF_HUB_OFFLINE=1 HF_HOME=$fresh/hf "$fresh/lm-eval/bin/python" tests/clients/check_lm_eval.py "${url#ready at }" "$binary"

scripts/fuzz.sh 1000000x chat_template utf8_stream http_bodies
