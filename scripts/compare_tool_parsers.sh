#!/usr/bin/env bash
# Nightly comparison of the recorded answers with the parsers of SGLang and vLLM. Their packages are installed without
# dependencies, and the modules that their parsers import next to them: PyTorch, some gigabytes, but no GPU is used.
#   scripts/compare_tool_parsers.sh [FOLDER]    # FOLDER is kept and used again
set -euo pipefail
ATTEND_EXTRA_PACKAGES="python3-venv" source "$(dirname "$0")/setup.sh"

folder=${1:-$(mktemp -d)}
if [ ! -d "$folder/venv" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.11.0 transformers==5.19.0 \
    xgrammar==0.2.7 openai==2.8.0 openai-harmony==0.0.4 cohere_melody mistral-common ipython pydantic orjson regex \
    partial-json-parser msgspec fastapi numpy requests psutil cloudpickle pyzmq aiohttp jinja2 json-repair lxml ijson \
    pybase64 pillow cbor2 cachetools prometheus-client uvloop py-cpuinfo setproctitle zstandard
  for package in sglang==0.5.23 vllm==0.24.0; do
    "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
      --target "$folder/${package%%=*}" "$package"
  done
fi
for server in sglang vllm; do
  PYTHONPATH="$folder/$server" "$folder/venv/bin/python" scripts/compare_tool_parsers.py "$server" --results "$folder/results.json"
done
python3 scripts/compare_tool_parsers.py table --results "$folder/results.json"
