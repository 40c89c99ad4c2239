"""Constraints on a completion's text: vLLM's StructuredOutputsParams, and SGLang's fields for the same."""

from __future__ import annotations

import dataclasses
import importlib.util
import json as json_module
import pathlib
from typing import Any, Sequence

from ._attend import choice_grammar
from ._rejection import rejection


@dataclasses.dataclass
class StructuredOutputsParams:
    """One of these constraints, as in vLLM.

    json             JSON schema: a dict, a text, or a pydantic model
    regex            regular expression that matches the complete text
    choice           list of texts
    grammar          GBNF grammar, which starts at "root"
    json_object      True: any JSON object
    structural_tag   xgrammar's structural tag, a dict or a text
    """

    json: Any = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None


def _as_text(name, value):
    if hasattr(value, "model_json_schema"):
        value = value.model_json_schema()
    if isinstance(value, str):
        return value
    try:
        return json_module.dumps(value)
    except (TypeError, ValueError) as error:
        raise rejection("invalid_argument", f"{name} {value!r}: expected values that JSON supports: {error}") from None


def _choices(name, value):
    choices = [value] if isinstance(value, str) else list(value)
    if not choices or not all(isinstance(choice, str) for choice in choices):
        raise rejection("invalid_argument", f"{name} {value!r}: expected a list of texts")
    return choice_grammar(choices)


# Kind of grammar by field, and the function that converts the value to its text.
_FIELDS = {
    "json": ("json_schema", _as_text),
    "regex": ("regex", _as_text),
    "choice": ("ebnf", _choices),
    "grammar": ("ebnf", _as_text),
    "json_object": ("json_schema", lambda name, value: '{"type": "object"}'),
    "structural_tag": ("structural_tag", _as_text),
}
# SGLang's names.
SGLANG_FIELDS = {"json_schema": "json", "regex": "regex", "ebnf": "grammar", "structural_tag": "structural_tag"}


def to_grammar(structured_outputs, sglang):
    """Returns (kind, text) from StructuredOutputsParams, a dict of its arguments or None, and from SGLang's fields; None
    without a grammar."""
    given = structured_outputs or {}
    if not isinstance(given, dict):
        given = {name: getattr(given, name, None) for name in _FIELDS}
    unknown = [name for name in given if name not in _FIELDS]
    if unknown:
        raise rejection("invalid_argument", f"structured_outputs: {unknown[0]!r}: expected one of {', '.join(_FIELDS)}")
    wanted = [(name, name, value) for name, value in given.items()]
    wanted += [(alias, SGLANG_FIELDS[alias], value) for alias, value in sglang.items()]
    wanted = [one for one in wanted if one[2] is not None and one[2] is not False]
    if len(wanted) > 1:
        raise rejection("invalid_argument", f"{wanted[1][0]}: {wanted[0][0]} already sets the format of the text")
    for name, field, value in wanted:
        kind, to_text = _FIELDS[field]
        return kind, to_text(name, value)
    return None


def installed_libraries():
    """Returns the folder in which this Python has both packages that compile grammars, or an empty text."""
    folders = set()
    for package in ("xgrammar", "tvm_ffi"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            return ""
        folders.add(pathlib.Path(spec.origin).parent.parent)
    return str(folders.pop()) if len(folders) == 1 else ""
