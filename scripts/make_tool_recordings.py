#!/usr/bin/env python3
"""Records answers with tool calls for each format of src/attend/serve/formats/tool_formats.cc.

    make_tool_recordings.py TEMPLATES [--out FOLDER] [--seed S] [--number N] [FORMAT...]

TEMPLATES is a folder with the chat templates in the source package of llama.cpp's server (see check_chat_templates.sh)
and those of vLLM's examples (tool_chat_template_*.jinja). Formats without a published template there have one below. Each conversation is rendered by transformers'
apply_chat_template, and the text after the generation prompt is recorded together with the calls, the text and the
reasoning that were rendered. Some texts are then changed as models change them: markers are missing, literals are
Python's, or max_tokens cuts the text off. Needs transformers and jinja2.

A file has a header and one record per line:
    header: format, reasoning (format of the reasoning, or null), template
    record: kind, text, calls [[name, arguments]...], content, reasoning; optionally inside (the prompt opened the
    reasoning) and cut (number of bytes after which max_tokens ends the text)
"""

import argparse
import json
import pathlib
import random
import re
from dataclasses import dataclass

import tokenizers
import transformers

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/tool_calls"
END = "<|end of answer|>"

TOOLS = [
    {"name": "get_weather", "description": "Weather of a city.", "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
        "deep": {"type": "boolean"}}, "required": ["city"]}},
    {"name": "search", "description": "Full-text search.", "parameters": {"type": "object", "properties": {
        "query": {"type": "string"}, "limit": {"type": ["integer", "null"]}, "boost": {"type": "number"},
        "filters": {"type": "object", "properties": {"lang": {"type": "string"}, "tags": {
            "type": "array", "items": {"type": "string"}}}}}, "required": ["query"]}},
    {"name": "send_message", "description": "Sends a text.", "parameters": {"type": "object", "properties": {
        "to": {"type": "array", "items": {"type": "string"}}, "body": {"type": "string"},
        "at": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}, "required": ["to", "body"]}},
    {"name": "plot", "description": "Draws points.", "parameters": {
        "$defs": {"point": {"type": "array", "items": {"type": "number"}}}, "type": "object", "properties": {
            "points": {"type": "array", "items": {"$ref": "#/$defs/point"}}, "title": {"type": "string"},
            "style": {"type": "object", "properties": {"grid": {"type": "boolean"}, "label": {
                "type": "object", "properties": {"size": {"type": "integer"}, "text": {"type": "string"}}}}}},
        "required": ["points"]}},
    {"name": "run_code", "description": "Runs Python.", "parameters": {"type": "object", "properties": {
        "code": {"type": "string"}, "timeout": {"type": "number"}}, "required": ["code"]}},
    {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}},
]

CITIES = ["Zürich", "São Paulo", "東京", "Київ", "القاهرة", "New York", "Reykjavík", "O'Fallon", "Łódź", "서울"]
QUERIES = ["red shoes", "what is \"RoPE\"?", "price < 30 & size > 4", "42", "true", "null", "naïve café 🙂", "a, b; c: d",
           "[draft] notes", "{curly}", "path C:\\temp\\new", "100% sure?", "résumé=1", "e=mc²", "'single' quotes"]
BODIES = ["Hello!", "Line one\nLine two", "Tab\there", "She said \"yes\".", "Ünïcödé ✓ 漢字 🙂", "1. First\n2. Second\n\nBye",
          "https://example.org/?a=1&b=2#top", "C:\\dir\\file.txt", "It's 5 o'clock", "100", "a < b and b > c"]
CODES = ["print('hi')", "for i in range(3):\n    print(i)\n", "x = {'a': [1, 2]}\nprint(x[\"a\"])", "s = \"\\n\".join(['a', 'b'])",
         "def f(x):\n    return x**2  # square\n\nprint(f(4))", "if a < b:\n\tpass", "import re\nre.sub(r'\\d+', '#', t)"]
CONTENTS = ["Let me look.", "I will check that for you: one moment.", "Sure! 👍", "First the data, then the plot.",
            "Moment, ich prüfe das.", "了解しました。"]
THOUGHTS = ["The user needs data.", "I need a tool.\nWhich one?\n\nThe first.", "Short.", "Überlegung: 2 < 3, so \"yes\".",
            "Steps:\n- call\n- answer", "考えます。"]
ANSWERS = ["It is 21 degrees.", "Done.\n\n- a\n- b", "No tool is needed: 2 < 3 and {\"a\": 1} is JSON.", "Here: `x[0]`, f(x) = 2.",
           "Voilà 🙂"]


def arguments(rng):
    """Returns a call: name and arguments."""
    name = rng.choice(["get_weather", "search", "send_message", "plot", "run_code"])
    if name == "get_weather":
        made = {"city": rng.choice(CITIES)}
        if rng.random() < 0.7: made["days"] = rng.choice([0, 1, 7, -3, 12345678901])
        if rng.random() < 0.5: made["unit"] = rng.choice(["celsius", "kelvin"])
        if rng.random() < 0.5: made["deep"] = rng.random() < 0.5
    elif name == "search":
        made = {"query": rng.choice(QUERIES)}
        if rng.random() < 0.6: made["limit"] = rng.choice([None, 10, 0])
        if rng.random() < 0.5: made["boost"] = rng.choice([0.5, -1.25, 3, 1e-3])
        if rng.random() < 0.6: made["filters"] = {"lang": rng.choice(["de", "日本語"]), "tags": rng.sample(["a", "b c", "d\"e"], rng.randint(0, 3))}
    elif name == "send_message":
        made = {"to": rng.sample(["ann@example.org", "Bob", "李雷"], rng.randint(1, 3)), "body": rng.choice(BODIES)}
        if rng.random() < 0.5: made["at"] = rng.choice([None, 1767225600])
    elif name == "plot":
        made = {"points": [[rng.randint(-9, 9), rng.choice([0.5, 2, -1.75])] for _ in range(rng.randint(0, 3))]}
        if rng.random() < 0.6: made["title"] = rng.choice(QUERIES)
        if rng.random() < 0.6: made["style"] = {"grid": rng.random() < 0.5, "label": {"size": 12, "text": rng.choice(["x", "Größe", "it's"])}}
    else:
        made = {"code": rng.choice(CODES)}
        if rng.random() < 0.5: made["timeout"] = rng.choice([1, 2.5])
    return name, made


def own(calls, reasoning=""):
    """Returns a template with calls written by `calls`, a piece of Jinja."""
    return (
        "{% for m in messages %}<|turn|>{{ m.role }}<|text|>" + reasoning + "{{ m.content or '' }}"
        "{% if m.tool_calls %}" + calls + "{% endif %}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|turn|>assistant<|text|>{% endif %}")


def json_calls(before, begin, middle, end, between, after):
    return (before + "{% for c in m.tool_calls %}" + begin + "{{ c.function.name }}" + middle
            + "{{ c.function.arguments | tojson }}" + end + "{% if not loop.last %}" + between + "{% endif %}{% endfor %}" + after)


def tag_calls(before, begin, middle, parameter, end, between, after):
    """`parameter`: Jinja with the variables k, v and t, the value as text."""
    return (before + "{% for c in m.tool_calls %}" + begin + "{{ c.function.name }}" + middle
            + "{% for k, v in c.function.arguments.items() %}{% set t = v if v is string else v | tojson %}" + parameter + "{% endfor %}"
            + end + "{% if not loop.last %}" + between + "{% endif %}{% endfor %}" + after)


KEY_VALUE = "<arg_key>{{ k }}</arg_key>\n<arg_value>{{ t }}</arg_value>\n"
PYTHON_CALLS = ("{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}="
                "{{ v | python }}{% if not loop.last %}, {% endif %}{% endfor %}){% if not loop.last %}, {% endif %}{% endfor %}")
QUOTED = ("{% macro quoted(v) %}{% if v is string %}<escape>{{ v }}<escape>{% elif v is mapping %}{{ '{' }}{% for k, w in v.items() %}"
          "{{ k }}:{{ quoted(w) }}{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}{% elif v is iterable %}[{% for w in v %}"
          "{{ quoted(w) }}{% if not loop.last %},{% endif %}{% endfor %}]{% else %}{{ v | tojson }}{% endif %}{% endmacro %}")
THINK = "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"


@dataclass
class Spec:
    template: str  # file of the published templates, or the text of an own template
    ends: tuple = ()  # texts after the answer, last first
    reasoning: str | None = None  # format of the reasoning, if the template renders it
    needs_reasoning: bool = False  # the template renders reasoning of every answer
    answer_reasoning: bool = True  # the template renders reasoning of answers without calls
    variables: dict = None  # of the template
    tools: bool = True  # transformers can render the tools
    text_arguments: bool = False  # the template expects arguments as JSON text
    max_calls: int = 3
    content: bool = True  # the template renders text before calls
    closers: tuple = ()  # markers that the answer may end without, last first
    openers: tuple = ()  # markers that may be missing
    literals: bool = False  # arguments are JSON, so that models may write Python's literals
    mention: str = ""  # marker in a text that is no call
    thought_calls: bool = True  # calls may begin within the reasoning
    quotes: bool = True  # the template escapes quotes and backslashes
    nulls: bool = True  # the template renders null
    thought_field: str = "reasoning_content"


QWEN_END = "<|im_end|>\n"
SPECS = {
    "qwen25": Spec("Qwen-Qwen3-0.6B.jinja", (QWEN_END,), "qwen3", closers=("\n</tool_call>",), literals=True, mention="<tool_call>"),
    "qwen3_coder": Spec("Qwen3.5-4B.jinja", (QWEN_END,), "qwen3", closers=("\n</tool_call>", "</function>"), openers=("<tool_call>\n",), mention="<tool_call>"),
    "gpt-oss": Spec("openai-gpt-oss-120b.jinja", ("<|call|>",), "gpt-oss", max_calls=1, content=False, literals=True, thought_field="thinking", thought_calls=False),
    "deepseekv3": Spec("llama-cpp-deepseek-r1.jinja", ("<｜end▁of▁sentence｜>",), tools=False, content=False, literals=True,
                       closers=("<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>"), openers=("<｜tool▁calls▁begin｜>",)),
    "deepseekv31": Spec("deepseek-ai-DeepSeek-V3.1.jinja", ("<｜end▁of▁sentence｜>",), literals=True,
                        closers=("<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>"), openers=("<｜tool▁calls▁begin｜>",), mention="<｜tool▁calls▁begin｜>"),
    "deepseekv32": Spec("deepseek-ai-DeepSeek-V3.2.jinja", ("<｜end▁of▁sentence｜>",), "deepseek-v3", needs_reasoning=True, variables={"thinking": True},
                        closers=("\n</｜DSML｜function_calls>", "</｜DSML｜invoke>"), openers=("<｜DSML｜function_calls>\n",), mention="<｜DSML｜function_calls>"),
    "deepseekv4": Spec("deepseek-ai-DeepSeek-V4.jinja", ("<｜end▁of▁sentence｜>",), "deepseek-v4", needs_reasoning=True, variables={"thinking": True},
                       closers=("\n</｜DSML｜tool_calls>", "</｜DSML｜invoke>"), openers=("<｜DSML｜tool_calls>\n",), mention="<｜DSML｜tool_calls>"),
    "deepseekv41": Spec(own(tag_calls(
        "\n\n<｜DSML｜ calls>\n", "<｜DSML｜ invoke name=\"", "\">\n",
        "<｜DSML｜ parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">{{ t }}</｜DSML｜ parameter>\n",
        "</｜DSML｜ invoke>\n", "", "</｜DSML｜ calls>")), closers=("</｜DSML｜ calls>", "</｜DSML｜ invoke>"), openers=("<｜DSML｜ calls>\n",), mention="<｜DSML｜ calls>"),
    "gigachat35": Spec(own(tag_calls(
        "\n\n<｜GCML｜tool_calls>\n", "<｜GCML｜invoke name=\"", "\">\n",
        "<｜GCML｜parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">{{ t }}</｜GCML｜parameter>\n",
        "</｜GCML｜invoke>\n", "", "</｜GCML｜tool_calls>"), THINK), reasoning="gigachat35", closers=("</｜GCML｜tool_calls>", "</｜GCML｜invoke>"),
        openers=("<｜GCML｜tool_calls>\n",), mention="<｜GCML｜tool_calls>"),
    "glm47": Spec("GLM-4.6.jinja", (), "glm45", needs_reasoning=True, closers=("\n</tool_call>", "</arg_value>"), mention="<tool_call>"),
    "iquest_q1": Spec(own(tag_calls("\n", "<iquest_tool_call>", "\n", KEY_VALUE, "</iquest_tool_call>", "\n", "")),
                      closers=("</iquest_tool_call>", "</arg_value>\n"), mention="<iquest_tool_call>"),
    "hy_v3": Spec(own(tag_calls("<tool_calls>\n", "<tool_call>", "<tool_sep>\n", KEY_VALUE, "</tool_call>\n", "", "</tool_calls>"), THINK),
                  reasoning="hy_v3", closers=("</tool_calls>", "</tool_call>\n"), openers=("<tool_calls>\n",), mention="<tool_calls>"),
    "hy_v3_opensource": Spec("tencent-Hy3.jinja", ("<｜hy_eos:opensource｜>",), "hy_v3_opensource", variables={"reasoning_effort": "high"}, needs_reasoning=True,
                             closers=("</tool_calls:opensource>", "</tool_call:opensource>\n"), openers=("<tool_calls:opensource>\n",), mention="<tool_calls:opensource>"),
    "k2_horizon": Spec(own(tag_calls(
        "\n<ifm|tool_calls>\n", "<ifm|tool_call>", "\n",
        "<ifm|arg_key>{{ k }}</ifm|arg_key>\n{% if loop.index is even %}<ifm|arg_type>any</ifm|arg_type>\n{% endif %}<ifm|arg_value>{{ t }}</ifm|arg_value>\n",
        "</ifm|tool_call>\n", "", "</ifm|tool_calls>")), closers=("</ifm|tool_calls>", "</ifm|tool_call>"), openers=("<ifm|tool_calls>\n",), mention="<ifm|tool_calls>"),
    "kimi_k2": Spec("moonshotai-Kimi-K2.jinja", ("<|im_end|>",), literals=True,
                    closers=("<|tool_calls_section_end|>", "<|tool_call_end|>"), openers=("<|tool_calls_section_begin|>",), mention="<|tool_calls_section_begin|>"),
    "kimi_k3": Spec("Kimi-K3.jinja", ("<|close|>message<|sep|><|end_of_msg|>",), "kimi_k3", thought_calls=False,
                    closers=("<|close|>tools<|sep|>", "<|close|>call<|sep|>"), openers=("<|open|>tools<|sep|>",), mention="<|open|>tools<|sep|>"),
    "minimax-m2": Spec("MiniMax-M2.jinja", ("[e~[\n",), "minimax_m2", closers=("\n</minimax:tool_call>", "</invoke>"), mention="<minimax:tool_call>"),
    "minimax-m3": Spec("MiniMax-M3.jinja", ("[e~[\n",), "minimax-m3", nulls=False, closers=("]<]minimax[>[</tool_call>", "]<]minimax[>[</invoke>\n"),
                       openers=("]<]minimax[>[<tool_call>\n",), mention="]<]minimax[>[<tool_call>"),
    "dots": Spec(own(tag_calls("\n<dots_function_call>\n", "<invoke name=\"", "\">\n", "<parameter name=\"{{ k }}\">{{ t }}</parameter>\n", "</invoke>\n", "",
                               "</dots_function_call>")), closers=("</dots_function_call>", "</invoke>"), mention="<dots_function_call>"),
    "minicpm5": Spec("openbmb-MiniCPM5-1B.jinja", (QWEN_END,), "qwen3", closers=("</function>", "</param>"), mention="<function name=\""),
    "mistral": Spec("mistralai-Ministral-3-14B-Reasoning-2512.jinja", ("</s>",), text_arguments=True, literals=True),
    "mistral_v3": Spec("mistralai-Mistral-Nemo-Instruct-2407.jinja", ("</s>",), content=False, literals=True, closers=("]",)),
    "llama3": Spec("meta-llama-Llama-3.1-8B-Instruct.jinja", ("<|eot_id|>",), max_calls=1, content=False, literals=True, closers=("}",)),
    "pythonic": Spec(own("[" + PYTHON_CALLS + "]"), content=False, closers=("]", ")"), openers=("[",)),
    "gemma4": Spec("google-gemma-4-31B-it.jinja", ("<turn|>\n", "<|tool_response>"), content=False, closers=("<tool_call|>", "}"), mention="<|tool_call>"),
    "functiongemma": Spec(QUOTED + own("{% for c in m.tool_calls %}<start_function_call>call:{{ c.function.name }}{{ quoted(c.function.arguments) }}"
                                       "<end_function_call>{% endfor %}"), closers=("<end_function_call>", "}"), mention="<start_function_call>"),
    "granite": Spec(own(json_calls("<|tool_call|>[", "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]")), literals=True, closers=("]", "}"), mention="<|tool_call|>"),
    "granite-20b-fc": Spec("tool_chat_template_granite_20b_fc.jinja", ("\n", "<|endoftext|>", "\n", " "), content=False, literals=True, closers=("}",), mention="<function_call>"),
    "phi4_mini_json": Spec(own(json_calls("functools[", "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]")), literals=True, closers=("]", "}"), content=False, mention="functools"),
    "seed_oss": Spec("ByteDance-Seed-OSS.jinja", ("<seed:eos>",), "seed_oss", closers=("\n</seed:tool_call>", "</function>"), mention="<seed:tool_call>"),
    "step3": Spec(own(tag_calls("\n<｜tool_calls_begin｜>\n", "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"", "\">",
                                "<steptml:parameter name=\"{{ k }}\">{{ t }}</steptml:parameter>", "</steptml:invoke><｜tool_call_end｜>\n", "",
                                "<｜tool_calls_end｜>"), THINK), reasoning="step3", closers=("<｜tool_calls_end｜>", "<｜tool_call_end｜>\n"), mention="<｜tool_calls_begin｜>"),
    "interns1": Spec("tool_chat_template_internlm2_tool.jinja", (QWEN_END,),
                     literals=True, closers=("<|action_end|>", "}"), mention="<|action_start|>"),
    "cohere_command3": Spec("CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", ("<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",), "cohere_command3", variables={"enable_thinking": True}, needs_reasoning=True, answer_reasoning=False, thought_calls=False,
                            content=False, literals=True, closers=("<|END_ACTION|>", "]")),
    "nemotron_json": Spec("NVIDIA-Nemotron-Nano-v2.jinja", ("\n", "\n", "<SPECIAL_12>", "\n"), variables={"enable_thinking": False}, content=False, literals=True, closers=("</TOOLCALL>", "]"), mention="<TOOLCALL>"),
    "lfm2": Spec("LFM2.5-8B-A1B.jinja", (QWEN_END,), quotes=False, closers=("<|tool_call_end|>", "]"), mention="<|tool_call_start|>"),
    "jamba": Spec("unsloth-Apriel-1.5.jinja", ("\n<|end|>\n",), literals=True, closers=("</tool_calls>", "]"), mention="<tool_calls>"),
    "longcat": Spec(own(json_calls("\n", "<longcat_tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</longcat_tool_call>", "\n", "")),
                    literals=True, closers=("\n</longcat_tool_call>", "}"), mention="<longcat_tool_call>"),
    "gigachat3": Spec("GigaChat3.1-10B-A1.8B.jinja", ("<|message_sep|>\n\n",), max_calls=1, literals=True, mention="<|function_call|>"),
    "apertus": Spec("Apertus-8B-Instruct.jinja", ("<|assistant_end|>",), literals=True, closers=("<|tools_suffix|>", "]"), mention="<|tools_prefix|>"),
    "functionary": Spec("meetkai-functionary-medium-v3.1.jinja", ("<|eom_id|>", "<|eot_id|>"), literals=True, closers=("</function>",), mention="<function="),
    "xlam": Spec("tool_chat_template_xlam_qwen.jinja", (QWEN_END,), content=False, literals=True, closers=("]", "}")),
}


def make_tokenizer(template):
    """Returns a tokenizer that only renders templates."""
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=model, eos_token=END, bos_token="<|begin of text|>", unk_token="<unk>")
    made.chat_template = template
    return made


def python_text(value):
    return repr(value)


class Recorder:
    def __init__(self, name, templates):
        self.name, self.spec = name, SPECS[name]
        file = templates / self.spec.template if self.spec.template.endswith(".jinja") else None
        source = file.read_text(encoding="utf-8") if file else self.spec.template
        self.template = file.name if file else "own"
        # transformers has no filter for Python's literals; own templates receive them as text.
        self.python = "| python" in source
        self.tokenizer = make_tokenizer(source.replace(" | python", ""))

    def render(self, messages, prompt):
        return self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=prompt,
            tools=[{"type": "function", "function": tool} for tool in TOOLS] if self.spec.tools else None, **(self.spec.variables or {}))

    def message(self, calls, content, thought):
        made = {"role": "assistant", "content": content}
        if thought is not None: made[self.spec.thought_field] = thought
        if calls:
            def written(given):
                if self.python: return {key: python_text(value) for key, value in given.items()}
                return json.dumps(given, ensure_ascii=False) if self.spec.text_arguments else given
            made["tool_calls"] = [
                {"id": f"call{self.name_hash(i):05}", "type": "function", "function": {"name": name, "arguments": written(given)}}
                for i, (name, given) in enumerate(calls)]
            if self.name == "kimi_k2":
                for i, call in enumerate(made["tool_calls"]):
                    call["id"] = f"functions.{call['function']['name']}:{i}"
        return made

    @staticmethod
    def name_hash(index):
        return (index + 1) * 7919 % 100000

    def answer(self, calls, content, thought):
        """Returns the text after the generation prompt, and whether the prompt opens the reasoning."""
        user = [{"role": "user", "content": "Please help."}]
        prompt = self.render(user, True)
        full = self.render(user + [self.message(calls, content, thought)], False)
        common = 0
        while common < min(len(prompt), len(full)) and prompt[common] == full[common]: common += 1
        # The common text may end within a marker.
        open_at = max(full.rfind("<", 0, common), full.rfind("[", 0, common))
        if common < len(prompt) and open_at >= 0 and not re.search(r"[>\]]", full[open_at:common]): common = open_at
        text = full[common:]
        for end in (END, *self.spec.ends): text = text.removesuffix(end)
        inside = prompt[:common].rstrip().endswith(("<think>", "<think:opensource>", "<|open|>think<|sep|>"))
        return text, inside

    def cut_closers(self, rng, text, calls):
        """Removes closing markers at the end of the text."""
        for closer in self.spec.closers[: rng.randint(1, len(self.spec.closers))]:
            at = text.rfind(closer)
            if at < 0 or text[at + len(closer):].strip(): break
            text = text[:at]
        return text

    def call(self, rng):
        if rng.random() < 0.1: return "now", {}
        while True:
            name, given = arguments(rng)
            if not self.spec.nulls: given = {key: value for key, value in given.items() if value is not None}
            if self.spec.quotes or not re.search(r"['\\\\]|\\\"", json.dumps(given)): return name, given

    def record(self, rng, index):
        spec = self.spec
        num = rng.randint(1, spec.max_calls)
        calls = [self.call(rng) for _ in range(num)]
        content = rng.choice(CONTENTS) if spec.content and rng.random() < 0.5 else ""
        has_thought = spec.reasoning and (spec.needs_reasoning or rng.random() < 0.5)
        thought = rng.choice(THOUGHTS) if has_thought else None
        kind = "calls"
        if 20 <= index < 23: kind, calls = "empty arguments", [("now", {})] * min(spec.max_calls, index - 19)
        elif 23 <= index < 27 and spec.closers: kind = "no closer"
        elif 27 <= index < 29 and spec.openers: kind = "no opener"
        elif 29 <= index < 32 and spec.literals: kind = "Python literals"
        elif 32 <= index < 36: kind = "cut"
        elif 36 <= index < 38 and spec.reasoning and spec.thought_calls: kind, content, thought = "call in reasoning", "", thought or THOUGHTS[0]
        elif index == 38: kind, calls, content, thought = "no call", [], rng.choice(ANSWERS), thought if spec.answer_reasoning else None
        elif index == 39 and spec.mention: kind, calls, content = "mention", [], f"The marker {spec.mention} begins a call."
        elif index == 39: kind, calls, content, thought = "no call", [], rng.choice(ANSWERS), thought if spec.answer_reasoning else None
        if kind == "no opener" and self.name == "pythonic": kind = "calls"
        text, inside = self.answer(calls, content, thought)
        made = {"kind": kind, "text": text, "calls": [list(call) for call in calls], "content": content, "reasoning": thought or ""}
        if kind == "no closer": made["text"] = self.cut_closers(rng, text, calls)
        if kind == "no opener": made["text"] = text.replace(rng.choice(spec.openers), "", 1)
        if kind == "Python literals":
            for _, given in calls:
                for shown in (json.dumps(given, ensure_ascii=False), json.dumps(given, ensure_ascii=False, separators=(",", ":"))):
                    made["text"] = made["text"].replace(shown, repr(given))
        if kind == "cut":
            begin = text.find(calls[0][0])
            made["cut"] = len(text[: rng.randint(begin + len(calls[0][0]), len(text) - 1)].encode())
        if kind == "call in reasoning":
            made["text"] = re.sub(r"\s*</(seed:|mm:)?think(:opensource)?>\s*", "\n", text, count=1)
        if inside and spec.reasoning: made["inside"] = True
        return made

    def check(self, record):
        """Checks that the template renders the conversation completely."""
        for name, given in record["calls"]:
            if name not in record["text"]: raise ValueError(f"{self.name}: no {name} in {record['text']}")
            for key in given:
                if key not in record["text"]: raise ValueError(f"{self.name}: no {key} in {record['text']}")
        for field in ("content", "reasoning"):
            if record[field] not in record["text"]: raise ValueError(f"{self.name}: no {field} in {record['text']}")
        if END in record["text"]: raise ValueError(f"{self.name}: an end in {record['text']}")


def main():
    arguments_parser = argparse.ArgumentParser()
    arguments_parser.add_argument("templates", type=pathlib.Path)
    arguments_parser.add_argument("formats", nargs="*")
    arguments_parser.add_argument("--out", type=pathlib.Path, default=OUT)
    arguments_parser.add_argument("--seed", type=int, default=1)
    arguments_parser.add_argument("--number", type=int, default=40)
    options = arguments_parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    def line(value): return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
    (options.out / "tools.json").write_text(json.dumps(TOOLS, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    for name in options.formats or SPECS:
        recorder, rng = Recorder(name, options.templates), random.Random(f"{options.seed} {name}")
        with open(options.out / f"{name}.jsonl", "w", encoding="utf-8") as out:
            out.write(line({"format": name, "reasoning": recorder.spec.reasoning, "template": recorder.template}))
            for index in range(options.number):
                record = recorder.record(rng, index % 40)
                recorder.check(record)
                out.write(line(record))


if __name__ == "__main__":
    main()
