"""Prompts of attend.LLM, Engine and Embedder: texts, token ids, or vLLM's dicts."""

import reprlib

from ._rejection import rejection


def to_list(prompts):
    """Returns the prompts of a call with one prompt or several."""
    if hasattr(prompts, "tolist"):
        prompts = prompts.tolist()
    if isinstance(prompts, (str, dict)):
        return [prompts]
    if not hasattr(prompts, "__len__") or not hasattr(prompts, "__getitem__"):
        raise rejection("invalid_argument", f"prompts {reprlib.repr(prompts)}: expected a prompt or a list of prompts")
    return [prompts] if len(prompts) > 0 and type(prompts[0]) is int else list(prompts)


def to_prompt(prompt):
    """Returns (the prompt's text or None, the prompt for the engine)."""
    value = prompt
    if isinstance(prompt, dict) and prompt.keys() <= {"prompt", "prompt_token_ids"}:
        value = prompt.get("prompt")
        if (ids := prompt.get("prompt_token_ids")) is not None:
            value = None if isinstance(ids, str) else ids
    if isinstance(value, str):
        if not _is_utf8(value):
            raise rejection("invalid_argument", f"prompt {reprlib.repr(value)}: expected a text without surrogates")
        return value, value
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)) and all(type(token) is int and abs(token) < 2**31 for token in value):
        return None, list(value)
    raise rejection(
        "invalid_argument",
        f'prompt {reprlib.repr(prompt)}: expected a text, a list of token ids, or a dict with "prompt" or "prompt_token_ids"',
    )


def _is_utf8(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
