#!/usr/bin/env python3
"""Checks that link targets of Markdown pages, and the src/ and scripts/ paths that they mention, exist."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)  # code, where [&](..) is not a link
LINK = re.compile(r"\]\(([^)#\s]+)")
NAMED = re.compile(r"`((?:src|scripts|docs|examples|tests|cmake)/[\w./-]+)`")


def main() -> int:
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    problems = []
    for page in pages:
        text = (ROOT / page).read_text()
        links = [link for link in LINK.findall(FENCED.sub("", text)) if not link.startswith(("http:", "https:"))]
        problems += [f"{page}: {link} does not exist" for link in links if not ((ROOT / page).parent / link).exists()]
        problems += [f"{page}: {name} does not exist" for name in NAMED.findall(text) if not (ROOT / name).exists()]
    print("\n".join(problems) or f"links: those of {len(pages)} pages exist")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
