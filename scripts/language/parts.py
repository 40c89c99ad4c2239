#!/usr/bin/env python3
"""Splits a tree into N parts of about equal work (comment lines, test names, page lines) for parallel editors: parts.py [ROOT] [-n 10] [--files]

Folders stay whole where they fit; a folder larger than a part is split by its sub-folders, and at last by files in their order.
Weight of a file: comment lines + lines of prose + 0.5 per test name + user-visible strings that odd_words' idioms hit."""
import argparse, collections, os, re, subprocess
a = argparse.ArgumentParser(); a.add_argument("root", nargs="?", default="."); a.add_argument("-n", type=int, default=10); a.add_argument("--files", action="store_true"); a = a.parse_args()
os.chdir(a.root)
TOPS = ["src", "python", "scripts", "examples", "benchmarks", "tests", "docs", "README.md", "cmake", ".ci", "CMakeLists.txt", "CMakePresets.json"]
IDIOM = re.compile(r"\b(behind|besides?|alone|says?|said|tells?|told|asks?|asked|wants?|whose|who|nobody|stands?|lies|takes|gives|comes|so many|as many|lone|of its own)\b|^\s*(//|#) ?(Of|What|Whose|Who|Whether|Where|By|As)\b")
weight, hits, comments, tests = {}, {}, {}, {}
for f in subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *TOPS], capture_output=True, text=True).stdout.split():
    if "/goldens/" in f or "/data/" in f or not (f.endswith((".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cpp", ".md", ".in", ".cmake", "CMakeLists.txt", ".html")) or f == ".ci/run") or not os.path.isfile(f): continue
    t = open(f, errors="replace").read().split("\n")
    if f.endswith(".md"): c = [l for l in t if l.strip()]
    else: c = [l for l in t if re.search(r"//|(?<!\S)#(?!include|pragma|if|end|def|el|!)", l)]
    n = len(re.findall(r"^(?:TYPED_)?TEST|^RC_GTEST|^def test_|^async def test_", "\n".join(t), re.M))
    comments[f], tests[f] = len(c), n
    hits[f] = sum(bool(IDIOM.search(l)) for l in c) + sum(bool(IDIOM.search(s)) for l in t for s in re.findall(r'"[^"]{15,}"', l))
    weight[f] = len(c) + 0.5 * n + hits[f]
total = sum(weight.values()); target = total / a.n

def units(prefix, files):
    w = sum(weight[f] for f in files)
    if w <= target * 0.55 or len(files) == 1: return [(prefix, files)]
    sub = collections.OrderedDict()
    for f in files:
        rest = f[len(prefix):].lstrip("/")
        sub.setdefault(prefix + ("/" if prefix else "") + rest.split("/")[0] if "/" in rest else prefix + "/*", []).append(f)
    if len(sub) == 1 and next(iter(sub)).endswith("*"):
        half, acc, first = w / 2, 0, []
        for f in files:
            first.append(f); acc += weight[f]
            if acc >= half: break
        return [(prefix + " (first)", first), (prefix + " (rest)", files[len(first):])]
    return [u for p, fs in sub.items() for u in (units(p, fs) if not p.endswith("*") else [(p, fs)])]

tops = collections.OrderedDict()
for f in sorted(weight): tops.setdefault(f.split("/")[0] if "/" in f else "(root)", []).append(f)
order = []
for t, fs in tops.items(): order += units(t, fs) if t != "(root)" else [("(root)", fs)]
# Neighbours stay together: fill part after part in the tree's order.
parts, cur, acc = [], [], 0.0
for u in order:
    w = sum(weight[f] for f in u[1])
    if cur and len(parts) < a.n - 1 and acc + w / 2 > target:
        parts.append(cur); cur, acc = [], 0.0
    cur.append(u); acc += w
parts.append(cur)
for i, p in enumerate(parts, 1):
    fs = [f for _, x in p for f in x]
    print(f"part {i}: {len(fs)} files, {sum(comments[f] for f in fs)} comment lines, {sum(hits[f] for f in fs)} with idioms, {sum(tests[f] for f in fs)} tests")
    print("    " + "  ".join(n for n, _ in p))
    if a.files: print("\n".join("      " + f for f in fs))
print(f"total: {sum(comments.values())} comment lines, {sum(hits.values())} with idioms, {sum(tests.values())} tests")
