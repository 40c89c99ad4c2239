"""SGLang's published benchmark client, unchanged, with each API that it supports."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

from conftest import MODEL

pytestmark = pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="no wheel of sglang")
TOKENS = ["--tokenize-prompt", "--vocab-size", "2000"]


@pytest.mark.parametrize("backend, prompts", [
    ("sglang", TOKENS), ("sglang-oai", TOKENS), ("vllm", TOKENS),
    ("sglang-oai-chat", ["--tokenizer", str(MODEL)]), ("vllm-chat", ["--tokenizer", str(MODEL)])])
def test_all_requests_are_answered(server, tmp_path, backend, prompts):
    results = tmp_path / "results.jsonl"
    # After the end of its answer, the tiny model continues with special tokens. The client counts an answer
    # without text as a failure.
    run = subprocess.run(
        [sys.executable, pathlib.Path(__file__).parent / "sglang_bench.py", "--backend", backend, "--base-url", server.url,
         "--dataset-name", "random-ids", *prompts, "--random-input-len", "64", "--random-output-len", "16",
         "--random-range-ratio", "0.5", "--extra-request-body", json.dumps({"skip_special_tokens": False}), "--num-prompts", "40", "--max-concurrency", "16", "--flush-cache",
         "--output-file", results], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(results.read_text())
    assert result["completed"] == 40 and result["mean_ttft_ms"] > 0
    assert "Cache flushed" in run.stdout + run.stderr
