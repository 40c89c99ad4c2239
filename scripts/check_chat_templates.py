#!/usr/bin/env python3
"""Compares attend's chat templates with renderings by Jinja, configured as in transformers.

    check_chat_templates.py RENDERER FOLDER... [--conversations N] [--seed S]

RENDERER is the test program render_chat_templates. Every *.jinja in the folders renders N random conversations both
ways; conversations that one side rejects must be rejected by the other. Needs python3-jinja2. Two differences are
intended: map, select and similar filters return lists, which tojson accepts, and `safe` has no effect, so text that is
appended to it is not escaped as HTML.
"""

import argparse
import datetime
import html
import json
import pathlib
import random
import re
import subprocess
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = 1767225600  # 2026-01-01
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class Generation(jinja2.ext.Extension):
    """The tag {% generation %} of transformers: renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    # Not the immutable sandbox, since attend lets a template append to its own lists.
    made = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = tojson
    made.filters["from_json"] = json.loads
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda format: datetime.datetime.fromtimestamp(NOW).strftime(format)
    return made


TEXTS = [
    "", "Hi", "What is 2 + 2?", " spaces around ", "\n\nlines\n\n", "ünïcödé ✓ 漢字 🙂", "{{ not a tag }} {% nor this %}",
    "<think>\nhm\n</think>\n\nSo: 4", "</think>", "<think>open", "it's \"quoted\" \\ \t tab", "<|im_end|><s>", "x" * 300,
    "<tool_call>\n{}\n</tool_call>", "[1, 2, 3]", "{\"a\": 1}", "line one\r\nline two",
]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a place.", "parameters": {
        "type": "object", "properties": {
            "place": {"type": "string", "description": "City, country"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "default": 1}},
        "required": ["place"]}}},
    {"type": "function", "function": {"name": "search", "description": "Find \"things\" — quickly.", "parameters": {
        "type": "object", "properties": {
            "terms": {"type": "array", "items": {"type": "string"}},
            "options": {"type": "object", "properties": {"exact": {"type": "boolean"}}, "required": []},
            "limit": {"type": ["integer", "null"], "description": "at most"}},
        "required": ["terms", "options"], "additionalProperties": False},
        "return": {"type": "object", "description": "hits"}}},
    {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {
        "type": "object", "properties": {}}}},
]
ARGUMENTS = [{}, {"place": "Zürich"}, {"terms": ["a", "b"], "options": {"exact": True}, "limit": None}, {"x": 1.5, "y": -3}]


def text(rng):
    return rng.choice(TEXTS) if rng.random() < 0.8 else " ".join(rng.choices(TEXTS, k=3))


def user(rng):
    if rng.random() < 0.15:
        return {"role": "user", "content": [{"type": "text", "text": text(rng)} for _ in range(rng.randint(1, 2))]}
    return {"role": "user", "content": text(rng)}


def assistant(rng, calls):
    message = {"role": "assistant", "content": text(rng)}
    if rng.random() < 0.2:
        message["reasoning_content"] = text(rng)
    if calls:
        message["content"] = rng.choice([None, "", "Let me see."])
        message["tool_calls"] = [
            {"id": f"call{i:05}", "type": "function", "function": {
                "name": rng.choice(TOOLS)["function"]["name"], "arguments": rng.choice(ARGUMENTS)}}
            for i in range(rng.randint(1, 2))
        ]
    return message


def conversation(rng):
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": rng.choice(["system"] * 4 + ["developer"]), "content": text(rng)})
    with_tools = rng.random() < 0.4
    for _ in range(rng.randint(1, 4)):
        messages.append(user(rng))
        if with_tools and rng.random() < 0.6:
            call = assistant(rng, calls=True)
            messages.append(call)
            for one in call["tool_calls"]:
                messages.append({"role": "tool", "name": one["function"]["name"], "tool_call_id": one["id"],
                                 "content": rng.choice(["sunny", "{\"t\": 21}", text(rng)])})
        messages.append(assistant(rng, calls=False))
    if rng.random() < 0.7:
        messages.pop()
    if rng.random() < 0.1:
        messages.insert(rng.randrange(len(messages) + 1), {"role": rng.choice(["user", "narrator"]), "content": text(rng)})
    variables = {"messages": messages}
    if with_tools:
        variables["tools"] = rng.sample(TOOLS, rng.randint(1, 3))
    elif rng.random() < 0.3:
        variables["tools"] = None
    if rng.random() < 0.3:
        variables[rng.choice(["enable_thinking", "thinking"])] = rng.random() < 0.5
    if rng.random() < 0.1:
        variables["reasoning_effort"] = rng.choice(["low", "high"])
    if rng.random() < 0.1:
        variables["documents"] = [{"title": "One", "text": text(rng)}]
    return variables


def expected(template, variables, prompt):
    try:
        return {"text": template.render(**SPECIAL, **variables, add_generation_prompt=prompt)}
    except Exception as error:  # any exception means that the template failed
        return {"error": f"{type(error).__name__}: {error}"}


def shown_parts(template, prompt_text="attend probes this"):
    """Returns true if a template renders contents that are lists, with attend's method."""
    shown = expected(template, {"messages": [{"role": "user", "content": [{"type": "text", "text": prompt_text}]}]}, True)
    return prompt_text in shown.get("text", "") and "'text'" not in shown["text"] and '"text"' not in shown["text"]


def shown_texts(template, prompt_text="attend probes this"):
    return prompt_text in expected(template, {"messages": [{"role": "user", "content": prompt_text}]}, True).get("text", "")


def read_reasoning_name(source):
    """Returns the name under which a template reads earlier reasoning, or None."""
    return next((name for name in ("reasoning_content", "reasoning", "thinking")
                 if re.search(rf"(['\"]){name}\1|\.{name}(?![a-z_(])", source)), None)


def shown_thinking(template, source):
    """Returns true if a template renders earlier reasoning as a part of the content, and reads no field for it."""
    part, thought = {"type": "text", "text": "attend probes this"}, "attend thinks this"
    messages = [{"role": "user", "content": [part]},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": thought}, part]}]
    shown = expected(template, {"messages": messages}, False).get("text", "")
    return (read_reasoning_name(source) in (None, "thinking") and thought in shown and "'thinking'" not in shown
            and '"thinking"' not in shown)


def call_forms(template, parts, texts):
    """Returns whether arguments are JSON text, the content of calls without a text (... if it may be any), and whether
    texts of the user after a result belong to the result."""
    key, value, follow_up = "attend_key", "attend value", "attend follows up"
    parameters = {"type": "object", "properties": {key: {"type": "string", "description": "Text."}}, "required": [key]}
    tool = {"type": "function", "function": {"name": "attend_calls", "description": "Text.", "parameters": parameters}}

    def shown(content, forms, *more):
        """Returns None if the template rejects the conversation."""
        function = {"name": "attend_calls", "arguments": {key: value}}
        messages = [{"role": "user", "content": "attend asks this"},
                    {"role": "assistant", "content": content,
                     "tool_calls": [{"id": "attendcal", "type": "function", "function": function}]},
                    {"role": "tool", "tool_call_id": "attendcal", "name": "attend_calls", "content": "attend answers this"},
                    *({"role": "user", "content": text} for text in more)]
        variables = prepared({"messages": messages, "tools": [tool]}, parts, texts, False, None, forms)
        return expected(template, variables, False).get("text")

    def forms(text_arguments):
        with_text, with_null = (shown(content, (text_arguments, (..., False), False)) for content in ("", None))
        shows = [value in (text or "") for text in (with_text, with_null)]
        fails = [text is None for text in (with_text, with_null)]
        missing = [not show for show in shows] if any(shows) else fails
        content = {(True, False): None, (False, True): ""}.get(tuple(missing), ...)
        if all(shows) and with_text != with_null:
            content = None if len(with_null.encode()) < len(with_text.encode()) else ""
        return (with_text if shows[0] else with_null) if any(shows) else None, (content, missing == [True, False])

    text = json.dumps({key: value})
    (as_object, object_content), (as_text, text_content) = forms(False), forms(True)
    takes_objects = as_object is not None and f"'{key}'" not in as_object
    takes_text = not takes_objects and text in (as_text or "")
    found = (True, text_content) if takes_text else (False, object_content)
    joins = False
    if shown("", (*found, False)) is not None and shown("", (*found, False), follow_up) is None:
        joins = follow_up in (shown("", (*found, True), follow_up) or "")
    return (*found, joins)


def prepared(variables, parts, texts, thinking, reasoning_name, calls):
    variables = json.loads(json.dumps(variables))
    text_arguments, (empty_content, separates), joins = calls
    if joins:
        messages = []
        for message in variables["messages"]:
            if message["role"] == "user" and messages and messages[-1]["role"] == "tool":
                content = message["content"]
                text = content if isinstance(content, str) else "\n".join(part["text"] for part in content)
                messages[-1]["content"] += "\n\n" + text
            else:
                messages.append(message)
        variables["messages"] = messages
    if separates:
        messages = []
        for message in variables["messages"]:
            if message.get("tool_calls") and (message["content"] or "").strip():
                messages.append({key: value for key, value in message.items() if key != "tool_calls"})
                message["content"] = None
            messages.append(message)
        variables["messages"] = messages
    for message in variables["messages"]:
        if message.get("tool_calls"):
            if empty_content is not ... and message.get("content") in (None, ""): message["content"] = empty_content
            for call in message["tool_calls"] if text_arguments else []:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        reasoning = message.get("reasoning_content")
        if reasoning is not None and thinking and "content" in message:
            content = message["content"] or []
            rest = [{"type": "text", "text": content}] if isinstance(content, str) else content
            message["content"] = [{"type": "thinking", "thinking": reasoning}, *rest]
        elif reasoning is not None and reasoning_name and not thinking:
            message.setdefault(reasoning_name, reasoning)
        content = message.get("content")
        if isinstance(content, list) and not parts:
            joined = ""
            for part in content:
                joined = joined + ("\n" if joined else "") + part["text"]
            message["content"] = joined
        elif isinstance(content, str) and parts and not texts:
            message["content"] = [{"type": "text", "text": content}]
    return variables


def with_complete_tools(variables):
    """Returns the variables with the optional fields of tools, which attend adds if a template fails without them."""
    variables = json.loads(json.dumps(variables))
    for tool in variables.get("tools") or []:
        function = tool["function"]
        function.setdefault("description", "")
        properties = function.setdefault("parameters", {"type": "object"}).setdefault("properties", {})
        for field in properties.values():
            field.setdefault("description", "")
    return variables


def agree(ours, theirs, source):
    if "text" not in theirs:
        return "error" in ours or "generator is not JSON serializable" in theirs["error"]
    return ours.get("text") in [theirs["text"]] + [html.unescape(theirs["text"])] * ("safe" in source)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("renderer")
    arguments.add_argument("folders", nargs="+")
    arguments.add_argument("--conversations", type=int, default=50)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()

    renderer = subprocess.Popen([options.renderer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    own = pathlib.Path(__file__).resolve().parent.parent / "tests/data/chat_templates"
    files = sorted(path for folder in options.folders for path in pathlib.Path(folder).rglob("*.jinja"))
    num_failed = num_texts = num_errors = 0
    for file in files:
        source = file.read_text(encoding="utf-8")
        rng = random.Random(f"{options.seed} {file.name}")
        template = environment().from_string(source)
        parts, texts = shown_parts(template), shown_texts(template)
        thinking = parts and shown_thinking(template, source)
        calls = call_forms(template, parts, texts)
        failed = 0
        for _ in range(options.conversations):
            variables, prompt = conversation(rng), rng.random() < 0.7
            renderer.stdin.write(json.dumps({"file": str(file), "directory": str(own), "variables": variables,
                                             "add_generation_prompt": prompt, "now": NOW}) + "\n")
            renderer.stdin.flush()
            ours = json.loads(renderer.stdout.readline())
            theirs = expected(template, prepared(variables, parts, texts, thinking, read_reasoning_name(source), calls), prompt)
            if "text" in ours and "text" not in theirs:
                variables = with_complete_tools(variables)
                theirs = expected(template, prepared(variables, parts, texts, thinking, read_reasoning_name(source), calls), prompt)
            num_texts += "text" in theirs
            num_errors += "error" in theirs
            if not agree(ours, theirs, source):
                failed += 1
                if failed == 1:
                    print(f"{file.name}: {json.dumps(variables, ensure_ascii=False)} prompt {prompt}\n"
                          f"  jinja2: {theirs}\n  attend: {ours}")
        num_failed += failed > 0
        if failed:
            print(f"{file.name}: {failed} of {options.conversations} differ")
    renderer.stdin.close()
    renderer.wait()
    print(f"chat templates: {len(files) - num_failed} of {len(files)} render as Jinja does "
          f"({num_texts} texts, {num_errors} rejections)")
    return 1 if num_failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
