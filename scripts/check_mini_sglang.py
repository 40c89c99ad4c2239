"""Runs unmodified mini-sglang on attend's kernels and compares its greedy answers: in float32 with attend's own engine,
in 16 bits with mini-sglang on its own kernels, which do not support float32.

    python -m attend.sgl_kernel scripts/check_mini_sglang.py MODEL [--backend fa,fi] [--cpu]

    python scripts/check_mini_sglang.py MODEL --dtype float16 --write own.json      # its own: sgl_kernel, flashinfer
    python -m attend.sgl_kernel scripts/check_mini_sglang.py MODEL --dtype float16 --wanted own.json

--prompts reads a file of JSON lines with a "prompt" each instead of sampling tokens. For prompts that the model was trained
to answer, rounding to 16 bits changes no token, while logits after random prompts are often nearly equal.

mini-sglang's python folder must be on PYTHONPATH; runs on attend need neither sgl_kernel nor flashinfer. --cpu runs
without a GPU: torch's CPU device replaces the GPU, and torch indexing replaces mini-sglang's two CUDA kernels (embedding
rows, storing K and V). With --backend fi this also requires python -O, since mini-sglang asserts CUDA tensors.
"""

import argparse
import contextlib
import json
import random
import sys
import types


def use_cpu_as_device():
    import torch
    import torch._dynamo  # reads attributes that are replaced below

    class AnyAttribute:
        """Stands for a stream or an event: CPU work is synchronous."""

        def __init__(self, *args, **kwargs):
            pass

        def __eq__(self, other):
            return True

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        record = synchronize = wait_event = wait_stream = __init__

    stream = AnyAttribute()
    nothing = lambda *args, **kwargs: None
    for name in ("set_device", "set_stream", "synchronize", "empty_cache", "reset_peak_memory_stats"):
        setattr(torch.cuda, name, nothing)
    torch.cuda.Stream = torch.cuda.Event = AnyAttribute
    torch.cuda.is_initialized = lambda: False
    torch.cuda.current_stream = lambda *args: stream
    torch.cuda.stream = lambda *args: contextlib.nullcontext()
    torch.cuda.mem_get_info = lambda *args: (1 << 30, 1 << 30)
    torch.cuda.nvtx.range = lambda *args, **kwargs: contextlib.nullcontext()
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = nothing

    def unpinned(make):
        return lambda *args, pin_memory=False, **kwargs: make(*args, **kwargs)

    for name in ("tensor", "ones", "zeros", "empty", "arange"):
        setattr(torch, name, unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self: self

    import minisgl.engine.engine as engine
    import minisgl.kernel as kernel

    class TorchOnTheCpu(types.ModuleType):
        def __getattr__(self, name):
            return getattr(torch, name)

        def device(self, name):
            return torch.device("cpu")

    engine.torch = TorchOnTheCpu("torch")

    def store_cache(k_cache, v_cache, indices, k, v):
        k_cache.flatten(1)[indices.long()] = k.flatten(1)
        v_cache.flatten(1)[indices.long()] = v.flatten(1)

    kernel.store_cache = store_cache
    kernel.indexing = lambda weights, indices, **options: weights[indices.long()]


def sample_prompts(vocab_size):
    """Returns token ids of several lengths, some with common prefixes."""
    draw = lambda n: [random.randrange(2, vocab_size) for _ in range(n)]
    random.seed(1)
    shared = draw(100)
    return [shared + draw(n) for n in (1, 7, 60, 300)] + [draw(n) for n in (1, 2, 17, 500)]


def attend_answers(arguments):
    """Returns prompts as token ids, and the answers of attend's engine in float32."""
    import attend

    if arguments.prompts:
        with open(arguments.prompts) as lines:
            prompts = [json.loads(line)["prompt"] for line in lines]
    else:
        prompts = sample_prompts(2000)
    with attend.LLM(arguments.model, device="cpu", dtype="float32", context_length=2048) as llm:
        greedy = attend.SamplingParams(temperature=0, max_tokens=arguments.tokens, ignore_eos=not arguments.prompts)
        outputs = llm.generate(prompts, greedy)
    # Excludes the token that ends an answer.
    return [list(output.prompt_token_ids) for output in outputs], [
        list(output.token_ids)[: -1 if output.finish_reason == "stop" else None] for output in outputs
    ]


def first_difference(answer, wanted):
    return next((i for i, (a, b) in enumerate(zip(answer, wanted)) if a != b), min(len(answer), len(wanted)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--backend", default="fa,fi")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--prompts", help="file of JSON lines with a prompt each")
    parser.add_argument("--write", help="file to write prompts and mini-sglang's answers to")
    parser.add_argument("--wanted", help="file of --write to compare with instead of attend's engine")
    arguments = parser.parse_args()

    if arguments.wanted:
        with open(arguments.wanted) as file:
            prompts, wanted = json.load(file)
    else:
        prompts, wanted = attend_answers(arguments)

    if arguments.cpu:
        use_cpu_as_device()
    import torch
    from minisgl.core import SamplingParams
    from minisgl.llm import LLM

    import flashinfer
    import sgl_kernel

    print("kernels:", sgl_kernel.__name__, flashinfer.__name__)
    llm = LLM(
        arguments.model, dtype=getattr(torch, arguments.dtype), attention_backend=arguments.backend, num_page_override=20000,
        cuda_graph_bs=[] if arguments.cpu else [1, 2, 4, 8],
    )  # fmt: skip
    failures = 0
    greedy = SamplingParams(temperature=0.0, max_tokens=arguments.tokens, ignore_eos=True)
    for round_name in ("first", "over cached prefixes"):
        # Compares up to the end of an answer, since mini-sglang may return one token more.
        answers = [answer["token_ids"][: len(tokens)] for answer, tokens in zip(llm.generate(prompts, greedy), wanted)]
        others = [i for i, tokens in enumerate(wanted) if answers[i] != tokens]
        failures += len(others)
        print(f"{round_name}: {len(prompts) - len(others)} of {len(prompts)} answers are equal, token by token")
        for i in others:
            print(f"  prompt {i}: differs from token {first_difference(answers[i], wanted[i])}")
        if arguments.write and round_name == "first":
            with open(arguments.write, "w") as file:
                json.dump([prompts, answers], file)
    for filters in (dict(), dict(top_k=20), dict(top_p=0.9), dict(top_k=20, top_p=0.9)):
        params = SamplingParams(temperature=0.8, max_tokens=arguments.tokens, ignore_eos=True, **filters)
        tokens = [token for answer in llm.generate(prompts, params) for token in answer["token_ids"]]
        print(f"sampled with {filters}: {len(tokens)} tokens, {len(set(tokens))} different")
        # The last two tokens of an answer may be missing if they end the text, since steps overlap.
        failures += not 0 <= len(prompts) * arguments.tokens - len(tokens) <= 2 * len(prompts)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
