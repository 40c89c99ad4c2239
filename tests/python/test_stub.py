"""The stub file that editors and type checkers read lists what the module has."""

import ast
import pathlib

from attend import _attend


def test_stub_matches_the_module():
    stub = pathlib.Path(_attend.__file__).with_name("_attend.pyi")
    defined = {node.name for node in ast.parse(stub.read_text()).body if hasattr(node, "name")}
    assert defined == {name for name in dir(_attend) if not name.startswith("_")}
