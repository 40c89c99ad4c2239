#!/usr/bin/env python3
"""Checks that a floor of src/attend includes only floors that stand above it, and only headers that exist."""

import pathlib
import re
import sys

# Top first, as in docs/architecture.md.
FLOORS = ["base", "tensor", "kernels", "kv", "attention", "backends", "model", "engine", "serve", "bench", "cli"]
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]attend/(([a-z_0-9]+)/[^">]+)[">]', re.MULTILINE)


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent / "src" / "attend"
    problems = []
    for path in sorted(root.rglob("*")):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        floor = path.relative_to(root).parts[0]
        if floor not in FLOORS:
            problems.append(f"{path}: {floor} is not a floor")
            continue
        for included, other in INCLUDE.findall(path.read_text()):
            if other not in FLOORS or FLOORS.index(other) > FLOORS.index(floor):
                problems.append(f"{path}: {floor} may not include {other} ({included})")
            elif not (root / included).exists():
                problems.append(f"{path}: attend/{included} does not exist")
    print("\n".join(problems) or "floors: every include points up")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
