"""Runs mini-sglang, unchanged, on attend's kernels, and compares its greedy answers in float32 with attend's own engine.

    python -m attend.sgl_kernel scripts/check_mini_sglang.py MODEL [--backend fa,fi] [--cpu]

mini-sglang's python folder is to be on PYTHONPATH; neither sgl_kernel nor flashinfer is needed. --cpu tries it without a
GPU: torch's CPU takes the place of the device, and indexing of torch that of mini-sglang's own two CUDA kernels (embedding
rows, the store of K and V). With --backend fi that wants python -O too, since mini-sglang asserts that tensors are CUDA's.
"""

import argparse
import contextlib
import random
import sys
import types


def pretend_that_the_cpu_is_the_device():
    import torch
    import torch._dynamo  # reads what is replaced below

    class Anything:
        """A stream or an event: work on the CPU is done when it is asked for."""

        def __init__(self, *args, **kwargs):
            pass

        def __eq__(self, other):
            return True

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        record = synchronize = wait_event = wait_stream = __init__

    stream = Anything()
    nothing = lambda *args, **kwargs: None
    for name in ("set_device", "set_stream", "synchronize", "empty_cache", "reset_peak_memory_stats"):
        setattr(torch.cuda, name, nothing)
    torch.cuda.Stream = torch.cuda.Event = Anything
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


def draw_prompts(vocab_size):
    """Token ids: of several lengths, some of which begin alike."""
    draw = lambda n: [random.randrange(2, vocab_size) for _ in range(n)]
    random.seed(1)
    shared = draw(100)
    return [shared + draw(n) for n in (1, 7, 60, 300)] + [draw(n) for n in (1, 2, 17, 500)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--backend", default="fa,fi")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--tokens", type=int, default=32)
    arguments = parser.parse_args()

    import attend

    with attend.LLM(arguments.model, device="cpu", dtype="float32", context_length=2048) as llm:
        prompts = draw_prompts(2000)
        greedy = attend.SamplingParams(temperature=0, max_tokens=arguments.tokens, ignore_eos=True)
        wanted = [list(output.token_ids) for output in llm.generate(prompts, greedy)]

    if arguments.cpu:
        pretend_that_the_cpu_is_the_device()
    import torch
    from minisgl.core import SamplingParams
    from minisgl.llm import LLM

    import flashinfer
    import sgl_kernel

    print("kernels:", sgl_kernel.__name__, flashinfer.__name__)
    llm = LLM(
        arguments.model, dtype=torch.float32, attention_backend=arguments.backend, num_page_override=20000,
        cuda_graph_bs=[] if arguments.cpu else [1, 2, 4, 8],
    )  # fmt: skip
    failures = 0
    for round_name in ("first", "over cached prefixes"):
        answers = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=arguments.tokens, ignore_eos=True))
        same = sum(answer["token_ids"] == tokens for answer, tokens in zip(answers, wanted))
        failures += len(prompts) - same
        print(f"{round_name}: {same} of {len(prompts)} answers are the same, token for token")
    for filters in (dict(), dict(top_k=20), dict(top_p=0.9), dict(top_k=20, top_p=0.9)):
        params = SamplingParams(temperature=0.8, max_tokens=arguments.tokens, ignore_eos=True, **filters)
        tokens = [token for answer in llm.generate(prompts, params) for token in answer["token_ids"]]
        print(f"sampled with {filters}: {len(tokens)} tokens, {len(set(tokens))} different")
        failures += len(tokens) != len(prompts) * arguments.tokens
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
