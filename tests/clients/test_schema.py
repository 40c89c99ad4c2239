"""schemathesis: requests made up from the OpenAPI document, good and bad, and what comes back."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("schemathesis")


def test_what_the_document_says_is_so(server, tmp_path):
    # Left out: that each request which the document allows is taken. Whether a token id is in the vocabulary, or a
    # template takes a conversation, no document says.
    run = subprocess.run(
        [pathlib.Path(sys.executable).parent / "st", "run", server.url + "/openapi.json", "--url", server.url, "--no-color",
         "--generation-deterministic", "--exclude-checks", "positive_data_acceptance",
         "--max-examples", os.environ.get("ATTEND_SCHEMA_EXAMPLES", "5"), "--request-timeout", "60"],
        cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-8000:]
