#!/usr/bin/env python3
"""Reads the recorded answers of tests/data/tool_calls with the parsers of SGLang or vLLM, and compares the calls.

    compare_tool_parsers.py sglang|vllm [FORMAT...] [--examples] [--results FILE]
    compare_tool_parsers.py table --results FILE    # the table of docs/tool-calls.md

attend reads every recorded answer as it was rendered (tests/serve/recorded_answers_test.cc), so that a difference from
the recording is a difference from attend. Prints a row per format and kind of answer with the number of answers that are
read in another way; with --examples, one of each. A difference without an entry in EXPLAINED is an error. vLLM reads
gpt-oss from token ids, not from text.
Needs the package of the server and the modules that its parsers import (scripts/compare_tool_parsers.sh installs them).
"""

import argparse
import json
import logging
import pathlib
import re
import sys
from collections import Counter

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/data/tool_calls"

# Parsers by format of attend; formats that a server does not have are missing.
SGLANG = {
    "qwen25": "qwen25", "qwen3_coder": "qwen3_coder", "gpt-oss": "gpt-oss", "deepseekv3": "deepseekv3",
    "deepseekv31": "deepseekv31", "deepseekv32": "deepseekv32", "deepseekv4": "deepseekv4", "deepseekv41": "deepseekv41",
    "gigachat35": "gigachat35", "glm47": "glm45", "iquest_q1": "iquest_q1", "hy_v3": "hunyuan", "hy_v3_opensource": "hunyuan",
    "k2_horizon": "k2_horizon", "kimi_k2": "kimi_k2", "kimi_k3": "kimi_k3", "minimax-m2": "minimax-m2", "minimax-m3": "minimax-m3", "dots": "dots",
    "minicpm5": "minicpm5", "mistral": "mistral", "mistral_v3": "mistral", "llama3": "llama3", "pythonic": "pythonic", "gemma4": "gemma4",
    "step3": "step3", "interns1": "interns1", "cohere_command3": "cohere_command4", "lfm2": "lfm2", "gigachat3": "gigachat3",
    "apertus": "apertus2509",
}
VLLM = {
    "qwen25": "hermes", "qwen3_coder": "qwen3_coder", "deepseekv3": "deepseek_v3",
    "deepseekv31": "deepseek_v31", "deepseekv32": "deepseek_v32", "deepseekv4": "deepseek_v4", "glm47": "glm45",
    "hy_v3": "hy_v3", "kimi_k2": "kimi_k2", "minimax-m2": "minimax_m2", "minimax-m3": "minimax_m3", "minicpm5": "minicpm5",
    "mistral": "mistral", "mistral_v3": "mistral", "llama3": "llama3_json", "pythonic": "pythonic", "gemma4": "gemma4",
    "functiongemma": "functiongemma", "granite": "granite", "granite-20b-fc": "granite-20b-fc",
    "phi4_mini_json": "phi4_mini_json", "seed_oss": "seed_oss", "step3": "step3", "interns1": "internlm",
    "cohere_command3": "cohere_command3", "lfm2": "lfm2", "jamba": "jamba", "longcat": "longcat", "gigachat3": "gigachat3",
    "apertus": "apertus", "xlam": "xlam",
}


# Differences from attend: reason, kinds of answers, and for each server the formats or "all".
EXPLAINED = [
    ("Arguments with Python's literals are not JSON, so that the call is lost", ["Python literals"],
     {"sglang": ["qwen25", "deepseekv3", "deepseekv31", "kimi_k2", "mistral", "gigachat3", "apertus", "cohere_command3"],
      "vllm": "all"}),
    ("A call needs its closing markers", ["no closer"], {"sglang": "all", "vllm": "all"}),
    ("A block of calls needs its opening marker", ["no opener"], {"sglang": "all", "vllm": "all"}),
    ("Calls within the reasoning are found, and the reasoning is returned as text", ["call in reasoning"],
     {"sglang": "all", "vllm": "all"}),
    ("Text from a marker on is dropped, even if it is not a call", ["mention"], {"sglang": "all", "vllm": "all"}),
    ("Spaces and line breaks at the ends of a text are removed", ["calls"],
     {"sglang": ["deepseekv32", "dots", "step3"]}),
    ("Python's None is returned as the text \"None\" for a type that is not text", ["calls"],
     {"sglang": ["qwen3_coder", "gemma4"], "vllm": ["qwen3_coder"]}),
    ("Texts that look like literals are converted: true becomes True", ["calls"], {"sglang": ["glm47"]}),
    ("A list of types, anyOf and $ref are not read: the value becomes null, a text or an object, or the calls are lost",
     ["calls"], {"sglang": ["hy_v3", "hy_v3_opensource", "minimax-m2", "minimax-m3", "step3"], "vllm": ["hy_v3", "minimax-m3"]}),
    ("The text null becomes null", ["calls", "no closer"], {"vllm": ["minimax-m3"]}),
    ("Calls without arguments are dropped", ["empty arguments", "calls"], {"sglang": ["step3"]}),
    ("Negative numbers are not literals: the call or all calls are lost", ["calls"],
     {"sglang": ["pythonic"], "vllm": ["pythonic", "lfm2"]}),
    ("Only the newer form is read: [TOOL_CALLS]NAME[ARGS]", ["calls", "empty arguments", "no closer", "Python literals"],
     {"sglang": ["mistral_v3"]}),
    ("A space is required between the markers", ["calls", "empty arguments", "no closer", "Python literals"],
     {"sglang": ["interns1"]}),
    ("The recipient is read only after the channel, not before it as the template writes it; its parser of reasoning reads "
     "the other messages", ["calls", "empty arguments", "Python literals", "no call"], {"sglang": ["gpt-oss"]}),
    ("Markers around an answer without calls are part of the text", ["no call"], {"sglang": ["cohere_command3", "kimi_k3"]}),
    ("Text before calls is dropped", ["calls", "empty arguments"], {"vllm": ["minicpm5"]}),
    ("Calls after text are not read", ["calls", "empty arguments"], {"vllm": ["granite"]}),
    ("Numbers in lists are returned as texts", ["calls"], {"vllm": ["gemma4"]}),
    ("Only texts are read; other arguments are dropped", ["calls"], {"vllm": ["functiongemma"]}),
    ("Brackets within arguments end the list of calls", ["calls"], {"vllm": ["phi4_mini_json"]}),
    ("Lists and objects remain text", ["calls"], {"vllm": ["seed_oss", "step3"]}),
    ("Several calls are an error", ["calls", "empty arguments"], {"vllm": ["interns1"]}),
]


def is_explained(server, name, kind):
    return any(kind in kinds and (servers.get(server) == "all" or name in servers.get(server, []))
               for _, kinds, servers in EXPLAINED)


def table(found):
    """Returns the rows of docs/tool-calls.md: the reasons, and the formats that differ for each of them."""
    rows = ["| difference from attend | SGLang | vLLM |", "|---|---|---|"]
    for reason, kinds, servers in EXPLAINED:
        def formats(server):
            if server not in found: return "not run"
            names = [name for name, different in found[server].items() if set(kinds) & set(different)
                     and (servers.get(server) == "all" or name in servers.get(server, []))]
            return ", ".join(f"`{name}`" for name in names) or "none"
        rows.append(f"| {reason} | {formats('sglang')} | {formats('vllm')} |")
    return "\n".join(rows)


def records(name):
    """Returns the header and the records of a format, without those that max_tokens cut off."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return json.loads(lines[0]), [one for one in map(json.loads, lines[1:]) if "cut" not in one]


def after_reasoning(record):
    """Returns the text that a server passes to its parser of calls, after its parser of reasoning.

    Calls within the reasoning are passed as they are.
    """
    text = record["text"]
    if record["kind"] != "call in reasoning":
        text = re.sub(r"^.*</(seed:|mm:)?think(:opensource)?>\s*", "", text, count=1, flags=re.S)
        text = re.sub(r"^.*(<\|END_THINKING\|>|<\|close\|>think<\|sep\|>)", "", text, count=1, flags=re.S)
    return text


def make_tokenizer(texts):
    """Returns a byte-level tokenizer of transformers with the markers in the texts as special tokens."""
    import tokenizers
    import transformers

    markers = set()
    for text in texts:
        markers.update(re.findall(r"<[^<>\s]{2,40}>|\[[A-Z_]{3,20}\]|<[^<>\n]{1,30}>", text))
    model = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab={letter: i for i, letter in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=model)
    # A vocabulary has the markers with a suffix or those without.
    suffixed = {marker.split(":")[0] + ">" for marker in markers if ":" in marker}
    made.add_special_tokens({"additional_special_tokens": sorted(markers | set(EXTRA_MARKERS) - suffixed)})
    return made


# Tokens that parsers look up in the vocabulary.
EXTRA_MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<tool_calls>",
                 "</tool_calls>", "<|tool_call|>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
                 "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<response>", "</response>", "<|tool_call_argument_begin|>",
                 "<|action_start|>", "<|action_end|>", "<|plugin|>", "<|message|>", "<|channel|>", "<|call|>", "<|end|>",
                 "<|start|>", "<|constrain|>", "<|return|>"]


class Sglang:
    names = SGLANG

    def __init__(self, name, tools, texts):
        from sglang.srt.entrypoints.openai.protocol import Tool
        from sglang.srt.function_call.function_call_parser import FunctionCallParser

        self.tools = [Tool(type="function", function=tool) for tool in tools]
        self.make = lambda: FunctionCallParser(self.tools, SGLANG[name], tokenizer=make_tokenizer(texts))

    def read(self, text):
        content, calls = self.make().parse_non_stream(text)
        return content, [(call.name, call.parameters) for call in calls]


class Vllm:
    names = VLLM

    def __init__(self, name, tools, texts):
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.tool_parsers import ToolParserManager

        self.parser = ToolParserManager.get_tool_parser(VLLM[name])
        self.tokenizer = make_tokenizer(texts)
        self.request = ChatCompletionRequest(
            model="m", messages=[{"role": "user", "content": "x"}], tools=[{"type": "function", "function": tool} for tool in tools])

    def read(self, text):
        found = self.parser(self.tokenizer, self.request.tools).extract_tool_calls(text, self.request)
        return found.content, [(call.function.name, call.function.arguments) for call in found.tool_calls]


def agree(read, record):
    """Returns true for the same calls and the same text, apart from spaces around it."""
    content, calls = read
    if (content or "").strip() != record["content"].strip(): return False
    if len(calls) != len(record["calls"]): return False
    for (name, arguments), (expected, values) in zip(calls, record["calls"]):
        try:
            if name != expected or json.loads(arguments or "{}") != values: return False
        except ValueError:
            return False
    return True


def compare(server, name, tools, shows):
    header, all_records = records(name)
    parser = server(name, tools, [record["text"] for record in all_records])
    total, different = Counter(), Counter()
    for record in all_records:
        kind, text = record["kind"], after_reasoning(record)
        total[kind] += 1
        try:
            found = parser.read(text)
        except Exception as error:  # a parser that fails reads nothing
            found = f"{type(error).__name__}: {error}", []
        if agree(found, record): continue
        different[kind] += 1
        if shows and different[kind] == 1: print(f"    {kind}: {text!r}\n      reads {found!r}")
    return {kind: f"{different[kind]}/{total[kind]}" for kind in total if different[kind]}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("server", choices=["sglang", "vllm", "table"])
    arguments.add_argument("formats", nargs="*")
    arguments.add_argument("--examples", action="store_true")
    arguments.add_argument("--results", type=pathlib.Path, help="file that the differences are added to, for table")
    options = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    results = json.loads(options.results.read_text()) if options.results and options.results.exists() else {}
    if options.server == "table":
        print(table(results))
        return 0
    server = {"sglang": Sglang, "vllm": Vllm}[options.server]
    tools = json.loads((FOLDER / "tools.json").read_text(encoding="utf-8"))
    found, num_answers, num_unexplained = {}, 0, 0
    for name in options.formats or server.names:
        found[name] = compare(server, name, tools, options.examples)
        num_answers += len(records(name)[1])
        for kind in found[name]:
            if is_explained(options.server, name, kind): continue
            num_unexplained += 1
            print(f"{name}, {kind}: a difference without an explanation")
        print(f"{name}: {', '.join(f'{kind} {count}' for kind, count in found[name].items()) or 'same'}", flush=True)
    if options.results: options.results.write_text(json.dumps({**results, options.server: found}))
    same = sum("calls" not in different and "empty arguments" not in different for different in found.values())
    print(f"{options.server}: {same} of {len(found)} formats read all unchanged answers as attend does "
          f"({num_answers} answers, {num_unexplained} differences without an explanation)")
    return 1 if num_unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
