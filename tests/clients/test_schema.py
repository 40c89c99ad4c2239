"""schemathesis: valid and invalid requests generated from the OpenAPI document."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import Server

pytest.importorskip("schemathesis")
# Number of examples per operation. Unset: only the document's bounds and types are covered, which is quick.
EXAMPLES = os.environ.get("ATTEND_SCHEMA_EXAMPLES")
# Operations after which the server answers no other ones until they are reverted (tests/serve/control_endpoints_test.cc).
SUSPENDS = "^/(sleep|wake_up|release_memory_occupation|resume_memory_occupation|pause_generation|update_weights_from_disk)$"
PHASES = ["--max-examples", EXAMPLES] if EXAMPLES else ["--phases", "coverage"]


def test_server_matches_its_openapi_document(tmp_path):
    # The document allows a thousand prompts without max_tokens, so a short context keeps their answers short.
    server = Server("--context-length", "64")
    # The check "positive_data_acceptance" is excluded: the document cannot express token ids in the
    # vocabulary or conversations that a template accepts.
    run = subprocess.run(
        [pathlib.Path(sys.executable).parent / "st", "run", server.url + "/openapi.json", "--url", server.url, "--no-color",
         "--generation-deterministic", "--exclude-checks", "positive_data_acceptance", "--exclude-path-regex", SUSPENDS, *PHASES,
         "--request-timeout", "300"],
        cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-8000:]
    assert server.stop()[0] == 0
