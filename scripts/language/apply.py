#!/usr/bin/env python3
"""Applies the language pass to a checkout: renames.tsv (names, files, tests) and spelling.tsv (American spelling).

  apply.py ROOT [--mode renames|spelling|all] [--write] [--only OLD]... [--kind KIND]... [--list stale|hand|public|sites]

Without --write nothing changes: counts, collisions, stale rows and chains are printed. With --write the tree is changed
(files by git mv) and nothing is committed. Running it twice changes nothing the second time.

renames.tsv, tab separated: kind, old, new, scope, definition, note. `scope`: path globs, separated by spaces; empty: the
tree. A glob that starts with "!" excludes. Kinds:
  identifier  whole word. An `old` that is one lower-case English word (no underscore, no capital) is replaced in code only,
              and in comments and docs between backticks; every other name is replaced in comments, strings and docs too.
  part        a run of segments of an identifier: quantised -> quantized turns QuantisedGemm, kQuantised, is_quantised and
              QUANTISED. Identifier rows win over parts; longer parts win over shorter ones.
  file        a run of segments of a file's base name ("lone_row_gemm" renames lone_row_gemm_bf16.cu too), or a whole base
              name with its extension. Includes, CMake lists, scripts and links follow.
  folder      a folder's path; a name with a hyphen (goldens) is replaced wherever it stands alone, another one with its parent.
  test        Suite.Name -> Suite.Name: in TEST, TEST_F, TEST_P, TYPED_TEST, RC_GTEST_PROP and in filters and docs.
  option      a token that may contain hyphens (flags, CMake options).
  string      a literal piece of text.
A note that starts with "hand" is not applied; a note that starts with "public" is applied, and needs an alias for the
old name (printed by --list public)."""
import argparse, collections, csv, fnmatch, os, re, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
EXCLUDED = ("tests/goldens/", "tests/data/", "models/", "benchmarks/results/", "third_party/")
# What measures words must keep the old ones.
EXCLUDED_FILES = {"scripts/check_words.py", "scripts/odd_words.py", "scripts/field.txt", "scripts/tiny_words.txt"}
TEXT = (".h", ".cc", ".cu", ".cuh", ".cpp", ".in", ".cmake", ".txt", ".py", ".pyi", ".sh", ".md", ".json", ".toml", ".html", ".service",
        ".conf", ".typed", ".clang-format", ".gitignore", "run", "Containerfile", ".dict", ".yml", ".yaml")
SEGMENT = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def git(root, *args):
    return subprocess.run(["git", "-C", root, *args], check=True, capture_output=True, text=True).stdout


def tree(root):
    for path in git(root, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (path.startswith(EXCLUDED) and not path.endswith(".md")) or path in EXCLUDED_FILES or not os.path.isfile(os.path.join(root, path)): continue
        yield path


def is_text(path):
    return path.endswith(TEXT)


class Row:
    def __init__(self, fields, line):
        fields = (fields + [""] * 6)[:6]
        self.kind, self.old, self.new, scope, self.definition, self.note = [f.strip() for f in fields]
        self.line, self.count, self.sites, self.kept = line, 0, collections.Counter(), collections.Counter()
        self.include = [g for g in scope.split() if not g.startswith("!")]
        self.exclude = [g[1:] for g in scope.split() if g.startswith("!")]
        self.by_hand = self.note.startswith("hand")
        self.public = self.note.startswith("public")
        # A plain English word is a name in code only.
        self.code_only = self.kind == "identifier" and re.fullmatch(r"[a-z]+", self.old) and "everywhere" not in self.note

    def applies(self, path):
        return (not self.include or any(fnmatch.fnmatch(path, g) for g in self.include)) and not any(fnmatch.fnmatch(path, g) for g in self.exclude)

    def hit(self, path):
        self.count += 1
        self.sites[path] += 1


def read_rows(path):
    rows = []
    for n, line in enumerate(open(path), 1):
        if not line.strip() or line.startswith("#"): continue
        fields = line.rstrip("\n").split("\t")
        if fields[0] == "kind": continue
        row = Row(fields, n)
        if not row.old or not row.new: sys.exit(f"{path}:{n}: a row needs old and new")
        rows.append(row)
    return rows


# ---- which parts of a file are code, comment and string -------------------------------------------------------------
C_LEX = re.compile(r'(?P<pragma>^[ \t]*#[ \t]*pragma[^\n]*)|(?P<raw>R"(?P<d>[^(\s]{0,16})\((?:.|\n)*?\)(?P=d)")|(?P<string>"(?:\\.|[^"\\\n])*")|(?P<char>\'(?:\\.|[^\'\\\n])\')|(?P<comment>//[^\n]*|/\*(?:.|\n)*?\*/)', re.M)
PY_LEX = re.compile(r'(?P<string>(?:[rbfRBF]{0,2})(?:"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'))|(?P<comment>#[^\n]*)', re.S)
SH_LEX = re.compile(r'(?P<comment>(?<![^\s])#[^\n]*)')


def pieces(path, text):
    """Yields (kind, piece): code, comment, string, include, doc."""
    if path.endswith(".md"):
        yield "doc", text; return
    if path.endswith((".h", ".cc", ".cu", ".cuh", ".cpp", ".cu.in", ".h.in", ".html")): lex = C_LEX
    elif path.endswith((".py", ".pyi", ".toml")): lex = PY_LEX
    elif path.endswith((".sh", ".cmake", ".txt", "run", ".in")): lex = SH_LEX
    else:
        yield "string", text; return
    at = 0
    for m in lex.finditer(text):
        if m.start() > at: yield "code", text[at:m.start()]
        kind = "comment" if m.lastgroup == "comment" else "string"
        line = text[text.rfind("\n", 0, m.start()) + 1:m.start()]
        if (kind == "string" and line.strip() == "#include") or m.lastgroup == "pragma": kind = "include"
        yield kind, m.group(0)
        at = m.end()
    if at < len(text): yield "code", text[at:]


# ---- parts of identifiers -------------------------------------------------------------------------------------------
def segments(name):
    """[(text, start, end)] of an identifier: words of snake_case and CamelCase."""
    return [(m.group(0), m.start(), m.end()) for m in SEGMENT.finditer(name)]


def recase(new_words, sample):
    """`new_words` (lower case) in the manner of `sample` (the old text)."""
    if sample.isupper() and len(sample) > 1: return "_".join(w.upper() for w in new_words)
    if "_" in sample or sample[0].islower():
        # lowerCamel does not occur; snake_case it is.
        return "_".join(new_words)
    return "".join(w[:1].upper() + w[1:] for w in new_words)


class Parts:
    def __init__(self, rows):
        self.rows = sorted(rows, key=lambda r: -len(r.old))
        self.by_first = collections.defaultdict(list)
        for r in self.rows: self.by_first[SEGMENT.findall(r.old)[0].lower()].append((SEGMENT.findall(r.old), r))

    def apply(self, name, path, hit=True):
        seg, out, i, at = segments(name), [], 0, 0
        while i < len(seg):
            for words, row in self.by_first.get(seg[i][0].lower(), ()):
                n = len(words)
                if [s[0].lower() for s in seg[i:i + n]] != [w.lower() for w in words] or not row.applies(path): continue
                begin, end = seg[i][1], seg[i + n - 1][2]
                old = name[begin:end]
                # The segments adjoin as one style: snake with single underscores, or Camel without.
                if not re.fullmatch(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*", old): continue
                new = recase(row.new.split("_"), old) if row.new != "-" else ""
                out.append(name[at:begin] + new); at = end
                if hit: row.hit(path)
                i += n
                break
            else:
                i += 1
        result = "".join(out) + name[at:]
        return re.sub(r"(?<=[A-Za-z0-9])__+(?=[A-Za-z0-9])", "_", result) if "-" in [r.new for r in self.rows] else result


# ---- spelling -------------------------------------------------------------------------------------------------------
def read_spelling(path):
    words, keep = {}, []
    for line in open(path):
        if not line.strip() or line.startswith("#"): continue
        f = line.rstrip("\n").split("\t")
        if f[0] == "british": continue
        if f[0] == "keep": keep.append((re.compile(f[1]), (f[2].split() if len(f) > 2 and f[2] else ["*"])))
        else: words[f[0]] = f[1]
    return words, keep


def american(text, words, counter, path):
    def change(m):
        w = m.group(0)
        new = words.get(w.lower())
        if new is None: return w
        counter[(w.lower(), new)] += 1
        return new.upper() if w.isupper() and len(w) > 1 else new[:1].upper() + new[1:] if w[0].isupper() else new
    return SEGMENT.sub(change, text)


# ---- files ----------------------------------------------------------------------------------------------------------
def renamed_base(base, rows, path):
    for row in rows:
        if not row.applies(path): continue
        if "." in row.old:
            if base == row.old: return row.new, row
            continue
        new = re.sub(r"(?<![A-Za-z0-9])" + re.escape(row.old) + r"(?![A-Za-z0-9])", row.new, base)
        if new != base: return new, row
    return base, None


def renamed_folder(folder, rows):
    for row in rows:
        if folder == row.old or folder.startswith(row.old + "/"): return row.new + folder[len(row.old):], row
    return folder, None


def file_moves(root, rows, words, folders=()):
    moves = {}
    listed = list(tree(root))
    if folders:
        listed += [p for p in git(root, "ls-files").splitlines() if p not in set(listed) and any(p.startswith(r.old + "/") for r in folders)]
    for path in listed:
        folder, base = os.path.split(path)
        new_folder, folder_row = renamed_folder(folder, folders)
        if folder_row:
            folder_row.hit(path)
            if path.startswith(EXCLUDED):
                moves[path] = os.path.join(new_folder, base)
                continue
        new, row = renamed_base(base, rows, path)
        if row: row.hit(path)
        if words:
            new = re.sub(r"[a-z]+", lambda m: words.get(m.group(0), m.group(0)), new)
        if new != base or folder_row: moves[path] = os.path.join(new_folder, new)
    return moves


def reference_patterns(paths, moves):
    """[(regex, replacement)]: a base name alone where no file of that name stays, else with its folder."""
    stay = collections.Counter(os.path.basename(p) for p in paths if p not in moves)
    kept, out = set(), {}
    for old, new in moves.items():
        b, nb = os.path.basename(old), os.path.basename(new)
        for suffix in (".in", ""):
            base, nbase = (b[:-len(suffix)], nb[:-len(suffix)]) if suffix and b.endswith(suffix) else (b, nb)
            if stay[base]:
                parent = os.path.basename(os.path.dirname(old))
                base, nbase = parent + "/" + base, parent + "/" + nbase
            if out.setdefault(base, nbase) != nbase:
                print(f"  REFERENCE {base}: two new names, {out[base]} and {nbase}")
    return out


# ---- main -----------------------------------------------------------------------------------------------------------
ALL_TESTS = re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)\(\s*(\w+),\s*(\w+)", re.M)
FILTER = re.compile(r"(?<![\w.*/-])(\*?)([A-Z]\w*)\.([A-Z]\w*)\*")


def rewrite_filters(text, path, all_tests, tests, report):
    """Wildcard filters of gtest ("Suite.Begin*"): the longest begin that names the same tests under their new names."""
    def change(m):
        before = {(s, n) for s, n in all_tests if s == m.group(2) and n.startswith(m.group(3))}
        if not before: return m.group(0)
        after = {(tests[k][0], tests[k][1]) if k in tests else k for k in before}
        if after == before: return m.group(0)
        suites = {s for s, _ in after}
        begin = os.path.commonprefix([n for _, n in after])
        now = {(tests[k][0], tests[k][1]) if k in tests else k for k in all_tests}
        if len(suites) != 1 or {k for k in now if k[0] in suites and k[1].startswith(begin)} != after or not begin:
            names = ":".join(f"{m.group(1)}{s}.{n}*" for s, n in sorted(after))
            report.append(f"FILTER {path}: {m.group(0)} -> {names}")
            return names
        new = f"{m.group(1)}{suites.pop()}.{begin}*"
        report.append(f"filter {path}: {m.group(0)} -> {new}")
        return new
    return FILTER.sub(change, text)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("root"); a.add_argument("--mode", choices=("renames", "spelling", "all"), default="all")
    a.add_argument("--write", action="store_true"); a.add_argument("--only", action="append"); a.add_argument("--kind", action="append")
    a.add_argument("--list", choices=("stale", "hand", "public", "sites", "counts")); a.add_argument("--renames", default=os.path.join(HERE, "renames.tsv"))
    a.add_argument("--spelling", default=os.path.join(HERE, "spelling.tsv"))
    a = a.parse_args()
    root = a.root
    rows = read_rows(a.renames) if a.mode != "spelling" and os.path.exists(a.renames) else []
    if a.only: rows = [r for r in rows if r.old in a.only]
    if a.kind: rows = [r for r in rows if r.kind in a.kind]
    words, keep = read_spelling(a.spelling) if a.mode != "renames" and os.path.exists(a.spelling) else ({}, [])
    if a.list == "hand": [print(f"{r.kind}\t{r.old}\t{r.new}\t{r.note}") for r in rows if r.by_hand]; return 0
    if a.list == "public": [print(f"{r.kind}\t{r.old}\t{r.new}\t{r.definition}") for r in rows if r.public]; return 0
    live = [r for r in rows if not r.by_hand]
    of = lambda kind: [r for r in live if r.kind == kind]
    paths = list(tree(root))

    folders = [r for r in of("folder") if os.path.isdir(os.path.join(root, r.old))]
    moves = file_moves(root, of("file"), words, folders)
    problems = []
    targets = collections.Counter(moves.values())
    for old, new in moves.items():
        if targets[new] > 1 or (os.path.exists(os.path.join(root, new)) and new not in moves): problems.append(f"FILE {old} -> {new}: exists")
    references = reference_patterns(paths, {o: n for o, n in moves.items() if os.path.basename(o) != os.path.basename(n)})
    folder_refs = []
    for r in folders:
        o, n = r.old.rsplit("/", 2), r.new.rsplit("/", 2)
        if "-" in o[-1]: folder_refs.append((re.compile(r"(?<![\w-])" + re.escape(o[-1]) + r"(?![\w-])"), n[-1]))
        else: folder_refs.append((re.compile(r"(?<![\w-])" + re.escape("/".join(o[-2:])) + r"(?=/)"), "/".join(n[-2:])))
    ref_re = re.compile(r"(?<![\w-])(" + "|".join(re.escape(b) for b in sorted(references, key=len, reverse=True)) + r")(?![\w-]|\.in\b(?<!x))") if references else None

    ids = collections.defaultdict(list)
    for r in of("identifier"): ids[r.old].append(r)
    parts = Parts(of("part"))
    tests = {}
    for r in of("test"):
        (s, n), (t, m) = r.old.split(".", 1), r.new.split(".", 1)
        tests[(s, n)] = (t, m, r)
    tests_by_name = collections.defaultdict(list)
    for (s, n), v in tests.items(): tests_by_name[n].append((s, v))
    options = {r.old: r for r in of("option")}
    opt_re = re.compile(r"(?<![\w-])(" + "|".join(re.escape(o) for o in sorted(options, key=len, reverse=True)) + r")(?![\w-])") if options else None
    strings = of("string")
    spelled = collections.Counter()

    # Names that are there before: for collisions.
    before = {}
    for path in paths:
        if is_text(path): before[path] = open(os.path.join(root, path), errors="surrogateescape").read()
    names_of = {p: set(IDENTIFIER.findall(t)) for p, t in before.items()}
    made = collections.defaultdict(lambda: collections.defaultdict(set))  # path -> new name -> old names

    def identifier(name, path, kind):
        for r in ids.get(name, ()):
            if r.applies(path):
                if r.code_only and kind not in ("code",): return name
                r.hit(path)
                if r.new != name: made[path][r.new].add(name)
                return r.new
        new = parts.apply(name, path) if len(name) > 2 else name
        if new != name: made[path][new].add(name)
        return new

    TEST_RE = re.compile(r"\b((?:TYPED_)?TEST(?:_F|_P)?|RC_GTEST_(?:FIXTURE_)?PROP)\((\s*)(\w+),(\s*)(\w+)")
    DOT_RE = re.compile(r"\b([A-Za-z]\w+)\.([A-Z]\w+)\b")

    def test_macro(m, path):
        hit = tests.get((m.group(3), m.group(5)))
        if not hit: return m.group(0)
        hit[2].hit(path)
        return f"{m.group(1)}({m.group(2)}{hit[0]},{m.group(4)}{hit[1]}"

    def test_dot(m, path):
        hit = tests.get((m.group(1), m.group(2)))
        if not hit:
            # A filter may end early: Suite.NameBeg*
            return m.group(0)
        hit[2].hit(path)
        return f"{hit[0]}.{hit[1]}"

    def keeps(path, at, text):
        return any(any(fnmatch.fnmatch(path, g) for g in globs) and any(m.start() <= at < m.end() for m in rx.finditer(text)) for rx, globs in keep)

    all_tests = {k for text in before.values() for k in ALL_TESTS.findall(text)} if tests else set()
    filters = []
    changed = {}
    for path, text in before.items():
        new = text
        if live:
            for rx, name in folder_refs: new = rx.sub(name, new)
            if ref_re: new = ref_re.sub(lambda m: references[m.group(1)], new)
            if tests:
                if path.endswith((".sh", "run", ".md", ".txt", ".py", ".json")): new = rewrite_filters(new, path, all_tests, tests, filters)
                new = TEST_RE.sub(lambda m: test_macro(m, path), new)
                new = DOT_RE.sub(lambda m: test_dot(m, path), new)
            for r in strings:
                if r.applies(path) and r.old in new:
                    r.count += new.count(r.old); r.sites[path] += new.count(r.old); new = new.replace(r.old, r.new)
            if opt_re:
                def option(m):
                    r = options[m.group(1)]
                    if not r.applies(path): return m.group(0)
                    r.hit(path); return r.new
                new = opt_re.sub(option, new)
            out = []
            for kind, piece in pieces(path, new):
                if kind == "include": out.append(piece); continue
                if kind in ("comment", "doc"):
                    # Between backticks is code.
                    bits = re.split(r"(`[^`\n]*`)", piece)
                    out.append("".join(IDENTIFIER.sub(lambda m: identifier(m.group(0), path, "code" if b.startswith("`") else kind), b) for b in bits))
                else:
                    out.append(IDENTIFIER.sub(lambda m: identifier(m.group(0), path, kind), piece))
            new = "".join(out)
            # Paths are no identifiers: undo what touched them inside links and lists is not needed, since files moved alike.
        if words:
            spans = []
            for rx, globs in keep:
                if any(fnmatch.fnmatch(path, g) for g in globs): spans += [(m.start(), m.end()) for m in rx.finditer(new)]
            spans.sort()
            out, at = [], 0
            for b, e in spans:
                if b < at: continue
                out.append(american(new[at:b], words, spelled, path)); out.append(new[b:e]); at = e
            out.append(american(new[at:], words, spelled, path))
            new = "".join(out)
        if new != text: changed[path] = new

    # Collisions: the new name was there already, in the same file, as another thing.
    clash = []
    for path, by_new in made.items():
        for new, olds in by_new.items():
            if new in names_of[path]: clash.append((path, new, olds))
            if len(olds) > 1: clash.append((path, new, olds))
    olds = {r.old for r in of("identifier")}
    # A new name that is an old name too, where both rows apply to one file: a second run would go on.
    by_old = collections.defaultdict(list)
    for r in of("identifier"): by_old[r.old].append(r)
    chains = sorted({r.new for r in of("identifier") for o in by_old.get(r.new, ()) if r is not o and any(r.applies(p) and o.applies(p) for p in paths)})

    total = sum(r.count for r in live)
    print(f"{len(rows)} rows, {sum(r.by_hand for r in rows)} by hand, {sum(r.public for r in rows)} public; {total} places; {len(changed)} files change, {len(moves)} move; {sum(spelled.values())} spellings")
    stale = [r for r in live if not r.count]
    print(f"stale rows (nothing matches): {len(stale)}")
    if a.list == "stale": [print(f"  {r.line}: {r.kind}\t{r.old}\t{r.new}") for r in stale]
    if a.list == "counts": [print(f"  {r.count:5} {r.kind}\t{r.old}\t{r.new}") for r in live]
    if a.list == "sites":
        for r in live: print(f"  {r.kind} {r.old} -> {r.new}: {r.count} in " + ", ".join(f"{p} ({c})" for p, c in r.sites.most_common(6)))
        for (w, n), c in spelled.most_common(): print(f"  {c:5} {w} -> {n}")
    for p in problems + filters: print("  " + p)
    print(f"collisions within a file: {len(clash)}")
    for path, new, olds_ in sorted(clash, key=lambda c: (c[1], c[0])): print(f"  CLASH {new} in {path} (from {', '.join(sorted(olds_))})")
    if chains: print("  CHAIN: new names that are old names too: " + " ".join(chains))

    if a.write:
        if problems: sys.exit("not written: files collide")
        for path, text in changed.items():
            with open(os.path.join(root, path), "w", errors="surrogateescape") as f: f.write(text)
        for old, new in moves.items():
            os.makedirs(os.path.join(root, os.path.dirname(new)), exist_ok=True)
            try: git(root, "mv", old, new)
            except subprocess.CalledProcessError: os.rename(os.path.join(root, old), os.path.join(root, new))
        print("written; run clang-format -i over changed C++ files, then scripts/check_links.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
