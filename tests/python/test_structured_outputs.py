"""Schemas, regexes and grammars with the arguments of vLLM and SGLang."""

import json
import os
import pathlib
import re
import subprocess
import sys

import attend
import pytest
from attend import SamplingParams, StructuredOutputsParams

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "attend-tiny"
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["a", "b"], "additionalProperties": False}  # fmt: skip
needs_libraries = pytest.mark.skipif(
    "ATTEND_GRAMMAR_LIBRARY_PATH" not in os.environ, reason="ATTEND_GRAMMAR_LIBRARY_PATH names no libraries of grammars"
)


@pytest.fixture(scope="module")
def llm():
    with attend.LLM(MODEL, device="cpu", max_total_tokens=8192, threads=2) as model:
        yield model


@needs_libraries
@pytest.mark.parametrize(
    "words, pattern",
    [
        ({"structured_outputs": {"regex": "[0-9]{3}"}}, "[0-9]{3}"),
        ({"structured_outputs": StructuredOutputsParams(choice=["left", "right"])}, "left|right"),
        ({"structured_outputs": {"grammar": 'root ::= "a" | "b"'}}, "a|b"),
        ({"guided_decoding": {"regex": "[0-9]{2}"}}, "[0-9]{2}"),
        ({"regex": "(cat|dog)s?"}, "(cat|dog)s?"),
        ({"ebnf": 'root ::= "c" "d"'}, "cd"),
        ({"json_schema": '{"enum": [1, 2]}'}, "1|2"),
    ],
    ids=str,
)
def test_texts_match_the_grammar(llm, words, pattern):
    (output,) = llm.generate("sort:", SamplingParams(temperature=1, n=4, seed=1, **words))
    for completion in output.outputs:
        assert re.fullmatch(pattern, completion.text), completion.text
        assert completion.finish_reason == "stop"


@needs_libraries
@pytest.mark.parametrize("words", [{"json_schema": SCHEMA}, {"structured_outputs": {"json": SCHEMA}}], ids=str)
def test_json_matches_the_schema(llm, words):
    (output,) = llm.generate("sort:", {"temperature": 1, "n": 8, "seed": 1, "max_tokens": 500, **words})
    for completion in output.outputs:
        assert completion.finish_reason == "stop"
        value = json.loads(completion.text)
        assert list(value) == ["a", "b"] and value["a"] in ("x", "y") and 1 <= value["b"] <= 9


@needs_libraries
def test_invalid_grammars_are_rejected(llm):
    with pytest.raises(attend.Error, match=r"prompts.0.: regex: a pattern with \( at character 1 has no \)") as rejected:
        llm.generate("sort:", {"regex": "(a"})
    assert rejected.value.code == "invalid_argument"
    assert llm.generate("sort:", {"temperature": 0, "max_tokens": 2})[0].text


def test_several_grammars_in_one_request_are_rejected(llm):
    with pytest.raises(attend.Error, match="regex already sets"):
        llm.generate("sort:", {"structured_outputs": {"regex": "a"}, "ebnf": "b"})
    with pytest.raises(attend.Error, match="expected one of json"):
        llm.generate("sort:", {"structured_outputs": {"xml": "a"}})
    with pytest.raises(attend.Error, match="expected a list of texts"):
        llm.generate("sort:", {"structured_outputs": {"choice": [1]}})


# Runs in its own process, since loaded libraries stay loaded.
def test_missing_libraries_are_named():
    program = f"""
import attend
with attend.LLM({str(MODEL)!r}, device="cpu", max_total_tokens=512, threads=1) as model:
    try:
        model.generate("sort:", {{"regex": "a"}})
    except attend.Error as error:
        print(error.code, error)
"""
    without = {name: value for name, value in os.environ.items() if name != "ATTEND_GRAMMAR_LIBRARY_PATH"}
    output = subprocess.run([sys.executable, "-c", program], env=without, capture_output=True, text=True).stdout
    assert re.match(r"unsupported .*pip install .* xgrammar==", output), output


def test_missing_folder_is_named():
    with pytest.raises(attend.Error, match="nowhere"):
        attend.LLM(MODEL, device="cpu", grammar_library_path="/nowhere")
