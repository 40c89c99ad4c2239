#!/usr/bin/env python3
"""Checks that a floor of src/attend includes only floors that stand above it, and only headers that exist; and that
installed headers (HEADERS of attend_floor) need nothing but installed headers and the standard library, and export what
they declare, while the others do not."""

import pathlib
import re
import sys

# Top first, as in docs/architecture.md.
FLOORS = ["base", "tensor", "kernels", "kv", "attention", "backends", "model", "engine", "serve", "bench", "cli"]
ROOT = pathlib.Path(__file__).resolve().parent.parent / "src" / "attend"
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]attend/(([a-z_0-9]+)/[^">]+)[">]', re.MULTILINE)
# A library's header, and not the standard's: a name with a folder or an ending.
FOREIGN_INCLUDE = re.compile(r'^\s*#\s*include\s+([<"](?!attend/)[^">]*[/.][^">]*[">])', re.MULTILINE)
EXPORT_BEGIN, EXPORT_END = "#pragma GCC visibility push(default)\n", "#pragma GCC visibility pop\n"


def installed_headers() -> set[str]:
    headers = set()
    for cmake in ROOT.rglob("CMakeLists.txt"):
        for words in re.findall(r"attend_floor\(\s*\w+\s+HEADERS\s+([^)]*?)\s+SOURCES", cmake.read_text()):
            headers |= {(cmake.parent / name).relative_to(ROOT).as_posix() for name in words.split()}
    return headers


def problems_of_installed(name: str, text: str, installed: set[str]) -> list[str]:
    problems = [f"needs attend/{other}, which is not" for other, _ in INCLUDE.findall(text) if other not in installed]
    problems += [f"needs {other}" for other in FOREIGN_INCLUDE.findall(text)]
    if text.count(EXPORT_BEGIN) != 1 or not text.endswith(EXPORT_END):
        problems.append(f"exports nothing: put {EXPORT_BEGIN.strip()} before its namespace and {EXPORT_END.strip()} last")
    return [f"{name} is installed: {problem}" for problem in problems]


def main() -> int:
    installed = installed_headers()
    problems = [f"{name} is to be installed and does not exist" for name in installed if not (ROOT / name).exists()]
    for path in sorted(ROOT.rglob("*")):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        name = path.relative_to(ROOT).as_posix()
        floor = name.split("/")[0]
        if floor not in FLOORS:
            problems.append(f"{name}: {floor} is not a floor")
            continue
        text = path.read_text()
        for included, other in INCLUDE.findall(text):
            if other not in FLOORS or FLOORS.index(other) > FLOORS.index(floor):
                problems.append(f"{name}: {floor} may not include {other} ({included})")
            elif not (ROOT / included).exists() and not (ROOT / f"{included}.in").exists():
                problems.append(f"{name}: attend/{included} does not exist")
        if name in installed:
            problems += problems_of_installed(name, text, installed)
        elif EXPORT_BEGIN in text:
            problems.append(f"{name} exports what it declares and is not installed")
    print("\n".join(problems) or f"floors: every include points up; {len(installed)} headers are installed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
