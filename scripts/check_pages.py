#!/usr/bin/env python3
"""Checks that documentation stays readable: limits the lines of README.md, and the characters of each section in docs/. A
page may have any number of sections; a long section hides its point."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
README_LINES = 150
SECTION_CHARACTERS = 6500
# Tables that are generated or looked up rather than read.
UNLIMITED = {"docs/support-matrix.md", "docs/glossary.md"}


def main() -> int:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "docs/*.md"]
    pages = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    problems = []
    lines = len((ROOT / "README.md").read_text().splitlines())
    if lines > README_LINES:
        problems.append(f"README.md: {lines} lines, expected at most {README_LINES}")
    for page in pages:
        if page in UNLIMITED:
            continue
        for section in re.split(r"(?m)^(?=##+ )", (ROOT / page).read_text()):
            title = section.splitlines()[0] if section.strip() else ""
            if len(section) > SECTION_CHARACTERS:
                problems.append(f"{page}: section '{title}' has {len(section)} characters, expected at most {SECTION_CHARACTERS}")
    print("\n".join(problems) or f"pages: README.md and the sections of {len(pages)} pages are short enough")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
