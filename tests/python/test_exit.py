"""Exit of a process that used attend: its own exit code, and no report of leaked objects by nanobind."""

import pathlib
import subprocess
import sys
import textwrap

import pytest

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "attend-tiny"

KERNELS = """
    import attend, attend.flashinfer, numpy as np
    q, k = np.ones((2, 4, 64), np.float32), np.ones((2, 1, 2, 64), np.float32)
    lengths = np.array([2], np.int32)
    ends = np.array([0, 2], np.int32)
    call = dict(cu_seqlen_q=ends, seqlen_kv=lengths, max_seqlen_q=2, cu_seqlen_kv=ends, scale=1.0)
    kept = attend.attention(q, k, k, **call)
    wrapper = attend.flashinfer.BatchPrefillWithRaggedKVCacheWrapper()
    wrapper.plan(ends, ends, 4, 2, 64, causal=True)
    more = wrapper.run(q, k[:, 0], k[:, 0], return_lse=True)
    try:
        attend.attention(q, k, k, **{**call, "scale": None})
    except TypeError as caught:
        error = caught
    try:
        attend.attention(q, k[:1], k, **call)
    except attend.Error as caught:
        error = caught  # keeps the traceback and so the tensors
"""

PLANS = """
    import numpy as np
    from attend.flash_attn_interface import flash_attn_with_kvcache, get_scheduler_metadata
    q, cache = np.ones((2, 1, 4, 64), np.float32), np.ones((2, 16, 2, 64), np.float32)
    lengths = np.array([3, 16], np.int32)
    plan = get_scheduler_metadata(2, 1, 16, 4, 2, 64, lengths, qkv_dtype="float32", causal=True)
    out = flash_attn_with_kvcache(q, cache, cache, cache_seqlens=lengths, causal=True, scheduler_metadata=plan)
    cycle = [out]
    cycle.append(cycle)
"""

ENGINE = """
    import attend
    llm = attend.LLM(MODEL, device="cpu", max_total_tokens=2048, threads=1)
    answers = llm.generate(["copy: laugh ->"] * 2, attend.SamplingParams(temperature=0, n=2))
    stream = llm.stream("count:", attend.SamplingParams(temperature=1, max_tokens=1500, ignore_eos=True))
    first = next(stream)  # the rest of the stream is not read
"""

# Threads that are in calls while the interpreter ends. They often give way to each other, and to finalizers.
DAEMONS = """
    import attend, gc, numpy as np, sys, threading
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    q, k = np.ones((2, 4, 64), np.float32), np.ones((2, 1, 2, 64), np.float32)
    ends, lengths = np.array([0, 2], np.int32), np.array([2], np.int32)
    llm = attend.LLM(MODEL, device="cpu", max_total_tokens=2048, threads=2)
    running = threading.Barrier(5)
    class Cycle:
        def __init__(self):
            self.cycle = self
        def __del__(self):
            sum(range(30))
    def compute():
        for i in range(10**9):
            attend.attention(q, k, k, ends, lengths, max_seqlen_q=2, cu_seqlen_kv=ends, scale=1.0)
            Cycle()
            if i == 10: running.wait()
    def generate():
        for i in range(10**9):
            llm.generate("sun", attend.SamplingParams(temperature=0, max_tokens=5))
            if i == 0: running.wait()
    for work in (compute, compute, compute, generate):
        threading.Thread(target=work, daemon=True).start()
    running.wait()
"""

TORCH = """
    import torch, attend.flash_attn_interface as fa
    q = torch.ones(1, 3, 2, 64)
    out = fa.flash_attn_func(q, q, q, causal=True)
    held = [fa.flash_attn_func(q, q, q, causal=True) for _ in range(3)]
    closure = lambda: (out, held, closure)
"""


@pytest.mark.parametrize("code", [KERNELS, PLANS, ENGINE, TORCH], ids=["kernels", "plans", "engine", "torch"])
@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)"], ids=["end", "exit"])
def test_process_exit_prints_nothing(code, ending):
    if code is TORCH:
        pytest.importorskip("torch")
    script = textwrap.dedent(code).replace("MODEL", repr(str(MODEL))) + ending
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ended.returncode == (3 if ending else 0), ended.stderr
    assert "leak" not in ended.stderr and "Traceback" not in ended.stderr, ended.stderr


@pytest.mark.parametrize("run", range(10))
def test_daemon_threads_in_calls_do_not_disturb_the_exit(run):
    script = textwrap.dedent(DAEMONS).replace("MODEL", repr(str(MODEL)))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0 and not ended.stderr, ended.stderr


# Functions of atexit run in reverse order, so `join` runs after attend's and `compute_at_exit` before it.
JOINED_AT_EXIT = """
    import atexit, threading
    errors = []
    @atexit.register
    def join():
        thread.join()
        print(*errors)
        print(compute().shape)
    import attend, numpy as np
    q, k = np.ones((2, 4, 64), np.float32), np.ones((2, 1, 2, 64), np.float32)
    ends, lengths = np.array([0, 2], np.int32), np.array([2], np.int32)
    def compute():
        return attend.attention(q, k, k, ends, lengths, max_seqlen_q=2, cu_seqlen_kv=ends, scale=1.0)
    def compute_until_error():
        try:
            while True:
                compute()
        except attend.Error as error:
            errors.append(error)
    thread = threading.Thread(target=compute_until_error, daemon=True)
    thread.start()
    @atexit.register
    def compute_at_exit():
        print(compute().shape)
"""


def test_a_thread_that_a_function_of_atexit_joins_gets_an_error():
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(JOINED_AT_EXIT)], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0 and not ended.stderr, ended.stderr
    assert ended.stdout == "(2, 4, 64)\nthe Python interpreter is exiting\n(2, 4, 64)\n"


FORK = """
    import attend, gc, numpy as np, os, sys
    llm = attend.LLM(MODEL, device="cpu", max_total_tokens=2048, threads=2)
    sampling = attend.SamplingParams(temperature=0, max_tokens=5)
    expected = llm.generate("sun", sampling)
    stream = llm.stream("count:", attend.SamplingParams(temperature=1, max_tokens=1500, ignore_eos=True))
    next(stream)
    parent = os.getpid()
    if (pid := os.fork()) == 0:
        for use in (lambda: llm.generate("sun", sampling), lambda: next(stream)):
            try:
                use()
            except attend.Error as error:
                assert f"the engine belongs to process {parent}" in str(error), error
            else:
                os._exit(2)
        stream.abort()
        q, k = np.ones((2, 4, 64), np.float32), np.ones((2, 1, 2, 64), np.float32)
        ends, lengths = np.array([0, 2], np.int32), np.array([2], np.int32)
        attend.attention(q, k, k, ends, lengths, max_seqlen_q=2, cu_seqlen_kv=ends, scale=1.0)  # kernels work
        with attend.LLM(MODEL, device="cpu", max_total_tokens=2048, threads=2) as own:
            assert own.generate("sun", sampling)[0].outputs[0].text == expected[0].outputs[0].text
        CLOSE
        sys.exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 7, code
    stream.abort()
    assert llm.generate("sun", sampling)[0].outputs[0].text == expected[0].outputs[0].text
"""


@pytest.mark.parametrize("close", ["", "llm.close()", "del llm, stream; gc.collect()"], ids=["exit", "close", "delete"])
def test_the_child_of_a_fork_leaves_the_engine_to_its_parent(close):
    script = textwrap.dedent(FORK).replace("MODEL", repr(str(MODEL))).replace("CLOSE", close or "pass")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
