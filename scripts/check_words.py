#!/usr/bin/env python3
"""Checks that the code speaks the field's language (docs/glossary.md): words of our own that once stood for an idea which
has a name do not come back. Comments count; an entry of ALLOWED says where a word means something else, and why."""

import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".in", ".cmake")

# Where, what must not stand there, and the word to use.
RULES = [
    ("src/*", r"\b(un)?turned\b|\bturn_rows\b", "rotate, apply_rope"),
    ("src/*", r"\bbegun norm\b|\bkNormSquares\b|\.squares\b", "deferred RMSNorm, partial_squares"),
    ("src/*", r"\bsettled\b", "prefix ready"),
    ("src/*", r"\bfew_rows|\w_few_rows|\b(k|Amx)?FewRows", "skinny"),
    ("src/*", r"many_?rows|ManyRows", "packed GEMM"),
    ("src/*", r"\btall_|TallTile", "gated-MLP GEMM; a tile's rows"),
    ("src/attend/kernels/gemm/cuda/*", r"\brow_tiles_|\brow_tiles\(|\bRowTiles", "batch-invariant GEMM"),
    ("src/*", r"invariant_linear|plain_product|plain product", "batch-invariant GEMM; naive GEMM"),
    ("src/attend/kernels/attention/*", r"\bweigh(_|\b)|take_weights|\bweights\b", "probabilities P (weights are the model's)"),
    ("src/attend/kernels/attention/*", r"\blargest_score|\b(float|double|F32) largest\b|\bfactor\b", "row max; scale_log2"),
    ("src/attend/kernels/attention/*", r"\bhid(e|es|den)_\w+|hide scores", "mask"),
    ("src/attend/kernels/*", r"\bjobs?\b|\b[A-Z]\w*Jobs?\b", "work tile"),
    ("src/attend/kernels/*", r"RingPlace|\brings?\b", "stages, pipeline state"),
    ("src/attend/kernels/*", r"\bbringing\b|\bcopy engine\b", "producer warps; TMA"),
    ("src/attend/kernels/*", r"give_registers|(begin|commit|wait)_products|use_after_wait|publish_to_async|allow_next_kernel",
     "the PTX instruction's name"),
    ("src/*", r"\btells_\w|\bmeet_|struct Early|\bEarly[A-Z]", "signal, cluster_sync, prefetched"),
    ("src/*", r"\bk(Most|Fewest|Least)[A-Z]", "kMax, kMin"),
    ("src/*", r"[Ee]venness", "wave efficiency"),
    ("src/*", r"plan_in_call|InCall|[Pp]lan in a call", "inline plan"),
    ("src/*", r"\b[Ww]ish(es)?\b|_wish(es)?\b", "BackendOptions, option"),
    ("src/*", r"\bat_first\b", "same_position"),
    ("src/*", r"\b(un)?normed\b|_normed\b", "normalized"),
]

# Path, the line's part, and why it may stand there.
ALLOWED = [
    ("src/attend/engine/engine_config.h", "turned off", "English: a feature that is switched off"),
]


def allowed(path: str, line: str) -> bool:
    return any(fnmatch.fnmatch(path, pattern) and part in line for pattern, part, _ in ALLOWED)


def main() -> int:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src"]
    files = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    rules = [(where, re.compile(words), instead) for where, words, instead in RULES]
    problems = []
    for path in files:
        if not path.endswith(SUFFIXES):
            continue
        mine = [(words, instead) for where, words, instead in rules if fnmatch.fnmatch(path, where)]
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            for words, instead in mine:
                found = words.search(line)
                if found and not allowed(path, line):
                    problems.append(f"{path}:{number}: '{found[0]}': the field says {instead}")
    print("\n".join(problems) or f"words: the field's, in {len(files)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
