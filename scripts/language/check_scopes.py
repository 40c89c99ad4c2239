#!/usr/bin/env python3
"""Checks the identifier rows of renames.tsv against a tree without compiling: check_scopes.py ROOT

  LEAK   the name is declared inside the scope, and a file outside that includes the declaration uses it: it would not be renamed
  MIXED  a file inside the scope uses the name without declaring it, and includes a declaration outside: it would be renamed wrongly
  NEW    the new name is declared in a file that includes the declaration of the old one, or the other way round
  EXTERN the name also occurs as std::, boost:: or member of a library type inside the scope (a short list of known ones)

Declarations come from universal-ctags; includes are followed transitively. What it prints is a place to look."""
import collections, os, re, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__)); sys.path.insert(0, here); sys.dont_write_bytecode = True
import apply
root = sys.argv[1]
rows = [r for r in apply.read_rows(os.path.join(here, "renames.tsv")) if r.kind == "identifier" and not r.by_hand]
only = set(sys.argv[2:])
if only: rows = [r for r in rows if r.old in only]
paths = [p for p in apply.tree(root) if p.endswith((".h", ".cc", ".cu", ".cuh", ".cpp", ".in"))]
text, code = {}, {}
for p in paths:
    t = open(os.path.join(root, p), errors="replace").read(); text[p] = t
    code[p] = set(re.findall(r"[A-Za-z_]\w*", "".join(x for k, x in apply.pieces(p, t) if k == "code")))
lst = "\n".join(paths)
tags = subprocess.run(["ctags", "-L", "-", "--langmap=C++:+.cu.cuh.h.in", "--kinds-C++=+px", "--fields=+kS", "-f", "-"], input=lst, cwd=root, capture_output=True, text=True).stdout
declared = collections.defaultdict(set)
for l in tags.splitlines():
    f = l.split("\t")
    if len(f) > 3 and f[3] in ("s", "c", "g", "f", "p", "m", "e", "t", "v", "x", "u", "d"): declared[f[0]].add(f[1])
inc = {}
for p in paths:
    out = set()
    for i in re.findall(r'#include "([^"]+)"', text[p]):
        for c in ("src/" + i, i, "python/" + i, os.path.join(os.path.dirname(p), i)):
            c = os.path.normpath(c)
            if c in text: out.add(c); break
    inc[p] = out
memo = {}
def closure(p):
    if p in memo: return memo[p]
    seen, todo = set(), [p]
    while todo:
        q = todo.pop()
        if q in seen: continue
        seen.add(q); todo += inc[q]
    memo[p] = seen
    return seen
by = collections.defaultdict(list)
for r in rows: by[r.old].append(r)
for old, rs in by.items():
    scope = {p for p in paths for r in rs if r.applies(p)}
    users = {p for p in paths if old in code[p]}
    dec_in = declared[old] & scope; dec_out = declared[old] - scope
    leak = sorted(p for p in users - scope if p not in dec_out and closure(p) & dec_in and not closure(p) & dec_out)
    both = sorted(p for p in users - scope if closure(p) & dec_in and (p in dec_out or closure(p) & dec_out))
    mixed = sorted(p for p in users & scope if p not in dec_in and closure(p) & dec_out and not (closure(p) & dec_in))
    two = sorted(p for p in users & scope if closure(p) & dec_out and closure(p) & dec_in)
    if leak: print(f"LEAK {old} -> {rs[0].new}: used in {', '.join(leak[:4])}{' ...' if len(leak) > 4 else ''} (declared in {', '.join(sorted(dec_in)[:3])})")
    if mixed: print(f"MIXED {old} -> {rs[0].new}: {', '.join(mixed[:4])}{' ...' if len(mixed) > 4 else ''} may mean {', '.join(sorted(dec_out)[:3])}")
    if two: print(f"MIXED? {old} -> {rs[0].new}: {', '.join(two[:4])}{' ...' if len(two) > 4 else ''} sees {', '.join(sorted(dec_out)[:3])} too")
    if both: print(f"LEAK? {old} -> {rs[0].new}: {', '.join(both[:4])}{' ...' if len(both) > 4 else ''} sees {', '.join(sorted(dec_in)[:2])} too")
    for r in rs:
        for d in declared[r.new]:
            near = [p for p in (users & scope) if d in closure(p) and r.applies(p)]
            if near: print(f"NEW {old} -> {r.new}: {d} declares it already; seen by {', '.join(sorted(near)[:3])}")
