"""Server whose model follows a script: five calls of the tool `add`, each of another number, then an answer.

The bundled model copies the words in brackets. The chat template writes brackets with the word of the next step, which is
the number of tool results so far, and REGEX continues each word with its call.
"""

from conftest import Server

WORDS = ["scout", "coffee", "writer", "pea", "milk"]
FINAL = "laugh"
TEMPLATE = """{{- bos_token }}
{%- set state = namespace(step=0) %}
{%- for message in messages if message.role == "tool" %}{% set state.step = state.step + 1 %}{% endfor %}
{%- set words = WORDS %}copy: sun [ {{ words[state.step] }} fox ] roll lemon ->"""
REGEX = "( " + "| ".join(
    [rf'{word} <tool_call>\n\{{"name": "add", "arguments": \{{"a": {step}, "b": 10\}}\}}\n</tool_call>'
     for step, word in enumerate(WORDS)] + [FINAL]) + ")"
# Calls of the script, as (a, b).
CALLS = [(step, 10) for step in range(len(WORDS))]


def start(folder):
    template = folder / "script.jinja"
    template.write_text(TEMPLATE.replace("WORDS", repr(WORDS + [FINAL])))
    return Server("--chat-template", str(template), "--tool-call-parser", "qwen25")
