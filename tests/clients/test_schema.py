"""schemathesis: requests made up from the OpenAPI document, good and bad, and what comes back."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import Server

pytest.importorskip("schemathesis")
# Of each operation; without it only what the document's bounds and types give, which is quick.
EXAMPLES = os.environ.get("ATTEND_SCHEMA_EXAMPLES")
PHASES = ["--max-examples", EXAMPLES] if EXAMPLES else ["--phases", "coverage"]


def test_server_matches_its_openapi_document(tmp_path):
    # The document allows a thousand prompts without a limit: here their answers are short.
    server = Server("--context-length", "64")
    # Left out: that each request which the document allows is taken. Whether a token id is in the vocabulary, or a
    # template takes a conversation, no document says.
    run = subprocess.run(
        [pathlib.Path(sys.executable).parent / "st", "run", server.url + "/openapi.json", "--url", server.url, "--no-color",
         "--generation-deterministic", "--exclude-checks", "positive_data_acceptance", *PHASES, "--request-timeout", "300"],
        cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-8000:]
    assert server.stop()[0] == 0
