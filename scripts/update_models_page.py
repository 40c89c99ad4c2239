#!/usr/bin/env python3
"""Replaces the sections about architectures in docs/models.md by the output of attend backends --models tests/goldens.

    python3 scripts/update_models_page.py build/release/attend
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    command = [sys.argv[1], "backends", "--models", str(ROOT / "tests/goldens")]
    tables = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    page = ROOT / "docs/models.md"
    sections = re.compile(r"^## Architectures .*?\n(?=\n## (?!Architectures))", re.MULTILINE | re.DOTALL)
    page.write_text(sections.sub(lambda _: tables, page.read_text(), count=1))


if __name__ == "__main__":
    main()
