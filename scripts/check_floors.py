#!/usr/bin/env python3
"""Checks src/attend: a floor includes only itself and floors below it, and only headers that exist. The same holds for the
families of kernels/, for the places within a family, and for the folders of a floor that declares an order. Namespaces
match folders. Installed headers (HEADERS of attend_floor and attend_kernels) include only installed headers and the
standard library, and export their declarations; other headers do not. A folder has a limited number of source files."""

import collections
import pathlib
import re
import sys

FOLDER_FILES = 25  # without its subfolders

# Lowest first; docs/architecture.md lists them from the top.
FLOORS = ["base", "tensor", "kernels", "kv", "attention", "backends", "checkpoint", "media", "text", "model", "exec", "engine", "grammar", "serve",
          "bench", "cli"]
# Folders of a floor, lowest first. "." contains the floor's own files; "contract" contains those of its headers that
# the folders may include (CONTRACTS).
ORDERS = {
    "checkpoint": ["contract", "gguf", "hf", "."],
    "text": ["tokenizer", "chat_template"],
    "text/tokenizer": ["contract", "regex", "bpe", "pipeline", ".", "decoding"],
    "text/chat_template": ["values", "syntax", "."],
    "model": ["config", "weights", "modules", "multimodal", "architectures", "adapters", "."],
    "serve": ["json", "web", "http", "formats", "protocols", "."],
}
CONTRACTS = {
    "checkpoint": ["checkpoint.h", "file_mapping.h", "input_file.h", "json.h", "mapped_range.h", "model_folder.h", "parse_json.h", "tensor_file.h",
                   "tensor_files.h"],
    "text/tokenizer": ["growth.h", "token_model.h", "unicode.h", "utf8.h", "vocabulary.h", "word_cache.h"],
}
# Namespaces of folders that differ from the enclosing folder's. Files of "api" folders declare the public interface in
# the enclosing namespace.
NAMESPACES = {
    "": "attend",
    "text/tokenizer": "attend::tokenizer",
    "text/chat_template": "attend::chat_template",
    "serve": "attend::serve",
    "bench": "attend::bench",
    "cli": "attend::cli",
}
API = {"text/tokenizer": "attend", "text/tokenizer/decoding": "attend", "text/chat_template": "attend", "cli": "attend"}
# Folders that only their own floor may include.
PRIVATE = ("checkpoint/gguf/", "checkpoint/hf/")
FAMILIES = ["common", "comm", "metadata", "kv_store", "norm_rope", "vision", "recurrent", "gemm", "moe", "fused", "attention", "sampling", "indexer"]
PLACE_NAMES = {"cpu", "cuda", "sm80", "sm90", "ptx"}  # within a family, and its namespaces
ROOT = pathlib.Path(__file__).resolve().parent.parent / "src" / "attend"
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]attend/(([a-z_0-9]+)/[^">]+)[">]', re.MULTILINE)
# Header of a library outside the standard library: a name with a folder or an extension.
FOREIGN_INCLUDE = re.compile(r'^\s*#\s*include\s+([<"](?!attend/)[^">]*[/.][^">]*[">])', re.MULTILINE)
EXPORT_BEGIN, EXPORT_END = "#pragma GCC visibility push(default)\n", "#pragma GCC visibility pop\n"
# Places that a place within a family may include, of its own or another family. Everything may include contracts; an
# implementation for a device may include that device only; code shared by architectures may include none of them. Files
# of cuda/ itself call its folders, and are the GPU contract for other families.
SEES = {
    "contract": {"contract"},
    "dispatch": {"contract", "cpu", "cuda", "cuda/common"},
    "cpu": {"contract", "cpu"},
    "cuda/common": {"contract", "cuda", "cuda/common"},
    "cuda/sm80": {"contract", "cuda", "cuda/common", "cuda/sm80"},
    "cuda/sm90": {"contract", "cuda", "cuda/common", "cuda/sm90"},
    "cuda": {"contract", "cuda", "cuda/common", "cuda/sm80", "cuda/sm90"},
}
# Stubs for kernels that a build does not have. They may include the GPU contracts of every family.
ABSENT = {"kernels/without_cuda.cc", "kernels/without_sm90a.cc"}


def installed_headers() -> set[str]:
    headers = set()
    for path in [*ROOT.rglob("CMakeLists.txt"), *ROOT.rglob("family.cmake")]:
        for words in re.findall(r"attend_(?:floor|kernels)\(\s*\w+\s+(?:COLD\s+)?HEADERS\s+([^)]*?)\s+SOURCES", path.read_text()):
            headers |= {(path.parent / name).relative_to(ROOT).as_posix() for name in words.split() if name.endswith(".h")}
    return headers


def problems_of_installed(name: str, text: str, installed: set[str]) -> list[str]:
    problems = [f"includes attend/{other}, which is not" for other, _ in INCLUDE.findall(text) if other not in installed]
    problems += [f"includes {other}" for other in FOREIGN_INCLUDE.findall(text)]
    if text.count(EXPORT_BEGIN) != 1 or not text.endswith(EXPORT_END):
        problems.append(f"exports nothing: put {EXPORT_BEGIN.strip()} before its namespace and {EXPORT_END.strip()} last")
    return [f"{name} is installed: {problem}" for problem in problems]


def find_place(parts: list[str]) -> str:
    """Returns the place of a file in a family: kernels/<family>/<place>/<file>."""
    if len(parts) == 3:
        return "contract" if parts[-1].endswith(".h") else "dispatch"
    return "/".join(parts[2:4]) if parts[2] == "cuda" and len(parts) > 4 and parts[3] != "ptx" else parts[2]


def problem_within_kernels(name: str, included: str) -> str | None:
    parts, others = name.split("/"), included.split("/")
    if name in ABSENT:
        return None
    if len(parts) < 3 or parts[1] not in FAMILIES:
        return f"{name} belongs to no family: expected kernels/<family>/, one of {', '.join(FAMILIES)}"
    if len(others) < 3 or others[1] not in FAMILIES or FAMILIES.index(others[1]) > FAMILIES.index(parts[1]):
        return f"{name}: {parts[1]} may not include {others[1]} ({included})"
    place, other = find_place(parts), find_place(others)
    within = parts[1] == others[1]
    if other not in SEES.get(place, set()) or within and other == "cuda" and place.startswith("cuda/"):
        return f"{name}: {place} may not include {other} ({included})"
    return None


def problem_within_floor(name: str, included: str) -> str | None:
    """Checks the declared order of every folder that both files are in."""
    for folder, order in ORDERS.items():
        if not (name.startswith(folder + "/") and included.startswith(folder + "/")):
            continue

        def place(file: str) -> str:
            rest = file[len(folder) + 1:]
            return rest.split("/")[0] if "/" in rest else "contract" if rest in CONTRACTS.get(folder, ()) else "."

        for file in (name, included):
            if place(file) not in order:
                return f"{file}: expected a folder of {folder}/ among {', '.join(order)}"
        if order.index(place(included)) > order.index(place(name)):
            return f"{name}: {folder}/{place(name)} may not include {folder}/{place(included)} ({included})"
    return None


def expected_namespace(folder: str) -> str:
    parts = folder.split("/")
    if parts[0] == "kernels":
        places = [part for part in parts[2:] if part in PLACE_NAMES]
        return "::".join(["attend", "kernels", *places])
    while "/".join(parts) not in NAMESPACES:
        parts = parts[:-1]
    return NAMESPACES["/".join(parts)]


def problem_of_namespace(name: str, text: str) -> str | None:
    """Checks that a file opens the namespace of its folder, or one nested in it."""
    folder = name.rsplit("/", 1)[0]
    expected = expected_namespace(folder)
    if name in ABSENT:
        return None
    for opened in re.findall(r"^namespace (attend[\w:]*) \{", text, re.MULTILINE):
        inner = opened.removeprefix(expected + "::")
        if opened not in (expected, API.get(folder)) and (
                inner == opened or name.startswith("kernels/") and inner.split("::")[0] in PLACE_NAMES):
            return f"{name}: namespace {opened}: expected {expected}"
    return None


def main() -> int:
    installed = installed_headers()
    problems = [f"{name} must be installed and does not exist" for name in installed if not (ROOT / name).exists()]
    sources = [path for path in sorted(ROOT.rglob("*")) if path.suffix in {".h", ".cc", ".cu", ".cuh"}]
    problems += [f"{folder.relative_to(ROOT)}: {count} files, expected at most {FOLDER_FILES}"
                 for folder, count in collections.Counter(path.parent for path in sources).items() if count > FOLDER_FILES]
    for path in sources:
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
            elif included.startswith(PRIVATE) and not name.startswith(included.split("/")[0] + "/"):
                problems.append(f"{name}: {floor} may not include {included}, which is private to its floor")
            elif floor == other == "kernels" and (problem := problem_within_kernels(name, included)):
                problems.append(problem)
            elif floor == other and (problem := problem_within_floor(name, included)):
                problems.append(problem)
        if problem := problem_of_namespace(name, text):
            problems.append(problem)
        if name in installed:
            problems += problems_of_installed(name, text, installed)
        elif EXPORT_BEGIN in text:
            problems.append(f"{name} exports its declarations and is not installed")
    # The Python module is built with installed headers only.
    for path in sorted((ROOT.parent.parent / "python" / "src").rglob("*.*")):
        problems += [f"python/src/{path.name}: attend/{other} is not installed" for other, _ in INCLUDE.findall(path.read_text()) if other not in installed]
    print("\n".join(problems) or f"floors: every include points down; {len(installed)} headers are installed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
