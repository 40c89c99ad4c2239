#!/usr/bin/env python3
"""Writes renames.tsv from rows*.txt and test_rules.py; ROOT: the tree whose tests are renamed."""
import csv, glob, os, re, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__)); root = sys.argv[1] if len(sys.argv) > 1 else "."
sys.path.insert(0, here); from test_rules import EXACT, SUITES, RULES, PY
kinds = {"i": "identifier", "p": "part", "f": "file", "o": "option", "d": "folder", "s": "string", "t": "test"}
files = [f for f in subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True).stdout.split() if not f.startswith(("tests/goldens/", "tests/data/", "models/", "benchmarks/results/"))]
public = set()
for f in files:
    if f.endswith(".h"):
        t = open(os.path.join(root, f), errors="replace").read()
        if "GCC visibility push(default)" in t: public |= set(re.findall(r"[A-Za-z_]\w+", re.sub(r"//.*", "", t.split("GCC visibility push(default)", 1)[1])))
rows = []
for name in sorted(glob.glob(os.path.join(here, "rows*.txt"))):
    for n, line in enumerate(open(name), 1):
        if not line.strip() or line.startswith("#"): continue
        p = (line.rstrip("\n").split("|") + [""] * 6)[:6]
        k, old, new, scope, definition, note = [x.strip() if i not in (1, 2) else x for i, x in enumerate(p)]
        for i in ("scope", "definition"):
            v = locals()[i]
            if re.match(r"(hand|public)\b", v):
                note = v
                if i == "scope": scope = ""
                else: definition = ""
        if k != "s": old, new = old.strip(), new.strip()
        if k == "i" and old in public and not note and (not scope or "src/attend/" not in scope) and not scope:
            note = "public: installed header"
        rows.append((kinds[k], old, new, scope, definition, note))
# tests
pat = re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)\(\s*(\w+),\s*(\w+)", re.M)
seen, tests = set(), []
for f in files:
    if f.endswith("_test.cc"):
        for s, n in pat.findall(open(os.path.join(root, f), errors="replace").read()): tests.append((s, n))
def rewrite(n):
    if n in EXACT: return EXACT[n]
    for a, b in RULES: n = re.sub(a + r"(?=[A-Z0-9]|$)", b, n)
    return n
taken = {}
for s, n in dict.fromkeys(tests):
    t, m = SUITES.get(s, s), rewrite(n)
    if (t, m) in taken and taken[(t, m)] != (s, n): m = n if (t, n) not in taken else n + "2"
    taken[(t, m)] = (s, n)
    if n != m: rows.append(("test", f"{s}.{n}", f"{t}.{m}", "", "", "suite renamed too" if s != t else ""))
for s, t in SUITES.items():
    if not any(r[0] == "identifier" and r[1] == s for r in rows): rows.append(("identifier", s, t, "tests/* .ci/* scripts/* docs/*", "test suite", ""))
for a, b in PY.items(): rows.append(("identifier", a, b, "", "test name", ""))
# Rows without a definition: where and as what the name is declared.
names = {"s": "struct", "c": "class", "g": "enum", "e": "enumerator", "f": "function", "p": "function", "m": "member", "v": "constant or variable", "t": "type alias", "l": "local", "z": "parameter", "d": "macro"}
listing = "\n".join(f for f in files if f.endswith((".h", ".cc", ".cu", ".cuh", ".cpp")))
declarations, rank = {}, "scgtfpemvdlz"
for line in subprocess.run(["ctags", "-L", "-", "--langmap=C++:+.cu.cuh.h", "--kinds-C++=+lpz", "--fields=+k", "-f", "-"], input=listing, cwd=root, capture_output=True, text=True).stdout.splitlines():
    p = line.split("\t")
    if len(p) < 4 or p[3] not in rank: continue
    code = re.search(r"/\^(.*?)\$?/;\"", line)
    item = (rank.index(p[3]), p[1], (code[1] if code else "").replace("\\/", "/").strip(), names.get(p[3], ""))
    if p[0] not in declarations or item[0] < declarations[p[0]][0]: declarations[p[0]] = item
for i, (kind, old, new, scope, definition, note) in enumerate(rows):
    if kind == "identifier" and not definition and old in declarations:
        _, path, code, what = declarations[old]
        rows[i] = (kind, old, new, scope, f"{what} in {path.replace('src/attend/', '')}: {code[:110]}".replace("\t", " "), note)
out = os.path.join(os.path.dirname(here), "renames.tsv")
with open(out, "w") as f:
    f.write("kind\told\tnew\tscope\tdefinition\tnote\n")
    for r in rows: f.write("\t".join(r) + "\n")
print(len(rows), "rows;", sum(r[0] == "test" for r in rows), "tests")
