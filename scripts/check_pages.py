#!/usr/bin/env python3
"""Checks that pages stay short enough to be read: README.md in lines, pages of docs/ in characters."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
README_LINES = 150
PAGE_CHARACTERS = 9000
# Pages that are written by a program, or that users read first and so are shorter.
LIMITS = {"docs/support-matrix.md": None, "docs/performance.md": 6000}


def main() -> int:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "docs/*.md"]
    pages = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    problems = []
    lines = len((ROOT / "README.md").read_text().splitlines())
    if lines > README_LINES:
        problems.append(f"README.md: {lines} lines, expected at most {README_LINES}")
    for page in pages:
        limit = 8000 if page.startswith("docs/kernels/") else LIMITS.get(page, PAGE_CHARACTERS)
        characters = len((ROOT / page).read_text())
        if limit is not None and characters > limit:
            problems.append(f"{page}: {characters} characters, expected at most {limit}")
    print("\n".join(problems) or f"pages: README.md and {len(pages)} of docs/ are short enough")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
