"""Table of benchmarks/llamacpp.sh: which runs a row keeps, and that the published table has the script's
format."""

import importlib.util
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load_compare():
    spec = importlib.util.spec_from_file_location("compare", ROOT / "benchmarks/llamacpp/compare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compare = load_compare()


class TookNothing:
    seconds = cpu_seconds = others = stolen = 0.0
    took = compare.Run.took


def measured(case, ours, theirs, turns):
    """A row measured from programs that return these values in order; llama.cpp runs alternate between
    without and with flash attention."""
    ours, theirs = iter(ours), iter(theirs)
    row = (case, None, lambda *_: (next(ours), TookNothing()), lambda *_: (next(theirs), TookNothing()))
    table = {"rows": []}
    figures = compare.find_row(table, "bfloat16", case, 1, 28)
    compare.measure(row, None, 1, turns, figures)
    return table, figures


def test_row_has_the_best_run_and_lists_all():
    _, row = measured("prompt of 512", [10.0, 12.0, 11.0], [5.0, 6.0, 4.0, 3.0], turns=3)
    assert (row["attend"], row["llama.cpp"], row["ratio"]) == (12.0, 6.0, 2.0)
    assert row["attend_turns"] == [10.0, 12.0, 11.0]
    # Only the faster mode of the first run is used in the later runs.
    assert row["llama.cpp_turns"] == [5.0, 6.0, 4.0, 3.0]


def test_seconds_and_bytes_are_better_when_they_are_fewer():
    _, row = measured("start to exit, one token, seconds", [2.0, 1.0], [4.0, 3.0, 5.0], turns=2)
    assert (row["attend"], row["llama.cpp"], row["ratio"]) == (1.0, 3.0, 3.0)


def test_more_runs_are_added_to_an_existing_row():
    table, row = measured("prompt of 512", [10.0], [5.0, 6.0], turns=1)
    assert compare.find_row(table, "bfloat16", "prompt of 512", 1, 28) is row
    assert compare.find_row(table, "bfloat16", "prompt of 512", 2, 28) is not row
    compare.add_turn(row, "attend", 9.0, {})
    assert row["attend"] == 10.0 and row["attend_turns"] == [10.0, 9.0]


def test_published_rows_have_the_fields_of_the_script():
    _, row = measured("prompt of 512", [1.0], [1.0, 1.0], turns=1)
    table = json.loads((ROOT / "benchmarks/results/cpu-llamacpp-zen3.json").read_text())
    assert sorted(table) == ["date", "layers", "llama.cpp", "machine", "rows"]
    for published in table["rows"]:
        assert sorted(published) == sorted(row), published["case"]
