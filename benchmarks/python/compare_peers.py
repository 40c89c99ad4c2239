#!/usr/bin/env python3
"""Times attend's attention and that of its peers on one NVIDIA GPU, in one process, with the same tensors.

    compare_peers.py [--only WORD]... [--skip NAME]... >> rows.jsonl     one line of JSON per case, the limits of the run first
    compare_peers.py --table rows.jsonl                                  the tables of docs/kernels/peers.md

Peers, omitted if not installed: FlashAttention-3 and FlashMLA of sglang-kernel, XQA of FlashInfer, cuDNN and
FlashAttention-2 of PyTorch. --only: cases with WORD in their names. --skip: a peer's name in the rows (fa2, fi.xqa, ...).

A call is captured into a CUDA graph with calls on other buffers, so that K/V are read from DRAM and host time does not
count; the median of ten replays is reported. attend plans in each call; MLA's schedules are computed before, on both sides.
Results are compared with float32 before they are timed: a sanity check, not a test.
"""

import argparse
import dataclasses
import datetime
import importlib
import json
import math
import os
import sys
import types

DTYPES = {"bf16": "bfloat16", "fp8": "float8_e4m3fn"}
NAMES = {"fa3": "FA3", "fi.xqa": "XQA", "cudnn": "cuDNN", "fa2": "FA2", "flashmla": "FlashMLA"}


@dataclasses.dataclass(frozen=True)
class Decode:
    """Requests with a few query tokens and num_keys cached tokens (including those) in shuffled pages."""

    batch: int
    num_keys: int
    heads: tuple = (64, 8)
    page_size: int = 64
    num_tokens: int = 1
    dim: int = 128
    skew: bool = False  # lengths from near 0 to twice num_keys
    q: str = "bf16"
    kv: str = "bf16"

    @property
    def name(self):
        return (f"decode q{self.q} kv{self.kv} d{self.dim} b{self.batch} kv{self.num_keys}{'skew' * self.skew} "
                f"{self.heads[0]}/{self.heads[1]} page{self.page_size} q{self.num_tokens}")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Mla:
    """Absorbed queries over latent rows of 576 elements, pages of 64."""

    batch: int
    num_keys: int
    num_heads: int
    num_tokens: int = 1

    @property
    def name(self):
        return f"mla bf16 b{self.batch} kv{self.num_keys} h{self.num_heads} q{self.num_tokens}"


@dataclasses.dataclass(frozen=True)
class Prefill:
    """Prompts of num_tokens new tokens after `prefix` cached ones; keys in shuffled pages, or contiguous."""

    batch: int
    num_tokens: int
    causal: bool = True
    heads: tuple = (32, 8)
    dim: int = 128
    v_dim: int = 0  # dim
    prefix: int = 0
    dtype: str = "bf16"
    kv: str = ""  # dtype
    page_size: int = 0

    @property
    def name(self):
        return (f"prefill {self.dtype}{f' kv{self.kv}' if self.kv else ''} d{self.dim}{f'/{self.v_dim}' if self.v_dim else ''}"
                f" b{self.batch} s{self.num_tokens}{f'+{self.prefix}' if self.prefix else ''} {self.heads[0]}/{self.heads[1]} "
                f"{'causal' if self.causal else 'full'}{f' page{self.page_size}' if self.page_size else ''}")  # fmt: skip


CASES = [
    *(Decode(b, kv) for b, kv in ((1, 2048), (1, 8192), (1, 131072), (3, 777), (8, 8192), (32, 8192), (128, 1024), (128, 8192))),
    Decode(64, 4096, skew=True),
    *(Decode(32, 8192, page_size=size) for size in (1, 16, 128)),
    Decode(32, 8192, (32, 8), page_size=16),
    Decode(128, 2048, (8, 1)),
    *(Decode(32, 8192, num_tokens=n) for n in (2, 4, 8)),
    Decode(4, 65536, (16, 2), num_tokens=4),
    Decode(16, 8192, (16, 2), num_tokens=3),
    Decode(200, 500, (32, 8), dim=64),
    Decode(32, 8192, (16, 2), dim=256),
    Decode(32, 8192, kv="fp8"),
    Decode(32, 8192, q="fp8", kv="fp8"),
    Mla(1, 4096, 128), Mla(1, 65536, 128), Mla(32, 8192, 16), Mla(128, 4096, 16), Mla(128, 4096, 64), Mla(128, 4096, 128),
    Mla(128, 4096, 128, 2), Mla(128, 1152, 128), Mla(3, 777, 128),
    Prefill(64, 200),
    Prefill(32, 512), Prefill(32, 512, False), Prefill(16, 1024), Prefill(16, 1024, False),
    Prefill(8, 2048), Prefill(8, 2048, False), Prefill(4, 4096), Prefill(4, 4096, False),
    Prefill(2, 8192), Prefill(2, 8192, False), Prefill(1, 16384), Prefill(1, 16384, False),
    Prefill(1, 8192, heads=(64, 8)),
    Prefill(1, 512, prefix=7680), Prefill(1, 512, heads=(8, 1), prefix=65024),
    Prefill(1, 16384, dim=64), Prefill(1, 16384, dim=96),
    Prefill(2, 8192, heads=(16, 16), dim=192, v_dim=128),
    Prefill(16, 1024, heads=(8, 2), dim=256), Prefill(1, 16384, False, heads=(8, 2), dim=256),
    *(Prefill(2, 8192, page_size=size) for size in (1, 4, 64)),
    Prefill(2, 8192, kv="fp8"), Prefill(2, 8192, kv="fp8", page_size=64),
    Prefill(2, 8192, dtype="fp8"), Prefill(4, 4096, dtype="fp8"), Prefill(1, 16384, False, dtype="fp8"),
    Prefill(1, 32768, heads=(64, 8)),
]  # fmt: skip


class Bench:
    """Tensors, peers and clocks of a run."""

    def __init__(self, skip):
        import torch

        self.torch, self.skip = torch, skip
        sglang = load_sgl_kernel(torch)
        self.flash = {"fa3": sglang["flash_attn"]} if "flash_attn" in sglang else {}
        self.flash["attend"] = importlib.import_module("attend.flash_attn_interface")
        self.mla = {"flashmla": sglang["flash_mla"]} if "flash_mla" in sglang else {}
        self.mla["attend"] = importlib.import_module("attend.flash_mla")
        self.flashinfer = load("flashinfer.decode")
        self.monitor = load("pynvml")
        if self.monitor:
            self.monitor.nvmlInit()

    def randn(self, *shape, dtype="bf16"):
        return self.torch.randn(*shape, device="cuda", dtype=self.torch.bfloat16).to(getattr(self.torch, DTYPES[dtype]))

    def int32(self, values):
        return self.torch.tensor(values, dtype=self.torch.int32, device="cuda")

    def microseconds(self, calls):
        """Returns the median time of one call; `calls` use different buffers and are captured together."""
        return self.medians([self.graph(calls)])[0] / len(calls)

    def graph(self, calls):
        torch = self.torch
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for call in calls:
                call()
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for call in calls:
                    call()
        return graph

    def medians(self, graphs):
        """Returns the median time of each graph in microseconds. Graphs alternate in both directions: long prompts exceed the
        power limit, and the first one would run at the boost clock, 10 % above the clock that the GPU drops to within 0.1 s."""
        torch = self.torch
        times = [[] for _ in graphs]
        order = list(zip(graphs, times))
        for turn in range(12):
            for graph, took in order[:: 1 if turn % 2 == 0 else -1]:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda._sleep(200000)  # so that the graph is queued before the GPU reaches it
                start.record()
                graph.replay()
                end.record()
                torch.cuda.synchronize()
                if turn >= 2:
                    took.append(start.elapsed_time(end) * 1e3)
        return [sorted(took)[len(took) // 2] for took in times]

    def clock_and_power(self):
        if not self.monitor:
            return None
        gpu = self.monitor.nvmlDeviceGetHandleByIndex(0)
        return {"MHz": self.monitor.nvmlDeviceGetClockInfo(gpu, self.monitor.NVML_CLOCK_SM),
                "W": round(self.monitor.nvmlDeviceGetPowerUsage(gpu) / 1e3)}  # fmt: skip

    def limits(self):
        torch = self.torch
        a = torch.empty(1 << 28, device="cuda")
        c = torch.empty_like(a)
        m, w = (self.randn(8192, 8192) for _ in range(2))
        rate = lambda amount, call: round(amount / self.microseconds([call]))
        return {"case": "roofs", "date": datetime.date.today().isoformat(), "gpu": torch.cuda.get_device_name(),
                "torch": torch.__version__, "copy GB/s": rate(2 * a.nbytes / 1e3, lambda: torch.neg(a, out=c)),
                "read GB/s": rate(a.nbytes / 1e3, a.sum), "gemm TFLOP/s": rate(2 * 8192**3 / 1e6, lambda: m @ w)}  # fmt: skip

    def row(self, case, num_bytes, num_flops, buffers, want, calls, wants=None):
        """`calls`: name to a function of a buffer; `want`: expected result of the first request of buffer 0; `wants`:
        expected results by name, for calls with other results."""
        usual = want
        us, notes, names, graphs = {}, {}, [], []
        bound = 0.12 if "fp8" in case.name else 0.02
        for name, call in calls:
            if name.removesuffix(".best") in self.skip:
                continue
            try:
                want = (wants or {}).get(name, usual)
                out = call(0).reshape(-1, *want.shape[1:])[: len(want)].float() if want is not None else None
                error = 0 if want is None else ((out - want).abs().max() / want.abs().max()).item()
                if not error < bound:
                    notes[name] = f"wrong: largest error is {error:.3g} of the largest output"
                    continue
                graphs.append(self.graph([lambda i=i: call(i) for i in range(buffers)]))
                names.append(name)
            except Exception as error:  # a peer reports what it does not support
                notes[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
        for name, took in zip(names, self.medians(graphs)):
            us[name] = round(min(took / buffers, us.get(name, math.inf)), 2)
        peers = [time for name, time in us.items() if not name.startswith("attend")]
        return {"case": case.name, "us": us,
                "GB/s": {name: round(num_bytes / time / 1e3) for name, time in us.items()},
                "TFLOP/s": {name: round(num_flops / time / 1e6) for name, time in us.items()}, "notes": notes,
                **(self.clock_and_power() or {}),
                "attend / best peer": round(min(peers) / us["attend"], 3) if peers and "attend" in us else None}  # fmt: skip

    def reference(self, q, k, v, causal, scale):
        """float32 attention of one request: q [tokens, heads, dim], k and v [keys, K/V heads, dim]."""
        torch = self.torch
        q, k, v = (x.float().transpose(0, 1) for x in (q, k, v))
        k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
        scores = q @ k.transpose(-1, -2) * scale
        if causal:
            tokens, keys = scores.shape[-2:]
            masked = torch.ones(tokens, keys, device="cuda", dtype=torch.bool).triu(keys - tokens + 1)
            scores.masked_fill_(masked, -math.inf)
        return (scores.softmax(-1) @ v).transpose(0, 1)

    def shuffled_pages(self, lengths, page_size):
        """Returns the page table of requests with randomly ordered pages, and the number of pages."""
        torch, pages = self.torch, [-(-length // page_size) for length in lengths]
        table, ids, at = torch.zeros(len(pages), max(pages), dtype=torch.int32), torch.randperm(sum(pages), dtype=torch.int32), 0
        for i, count in enumerate(pages):
            table[i, :count] = ids[at : at + count]
            at += count
        return table.cuda(), sum(pages)

    def buffers_of(self, num_bytes):
        """Returns a number of buffers that together exceed the L2 cache several times."""
        return max(1, min(8, math.ceil(256e6 / num_bytes)))

    def decode(self, case):
        torch, (heads, kv_heads), b, d, tokens = self.torch, case.heads, case.batch, case.dim, case.num_tokens
        lengths = [case.num_keys] * b
        if case.skew:
            lengths = [max(tokens, int(case.num_keys * 2 * ((i * 7919) % b + 0.5) / b)) for i in range(b)]
        num_bytes = sum(lengths) * kv_heads * d * 2 * (1 if case.kv == "fp8" else 2)
        buffers = self.buffers_of(num_bytes)
        (table, num_pages), used = self.shuffled_pages(lengths, case.page_size), self.int32(lengths)
        q = [self.randn(b, tokens, heads, d, dtype=case.q) for _ in range(buffers)]
        k, v = ([self.randn(num_pages, case.page_size, kv_heads, d, dtype=case.kv) for _ in range(buffers)] for _ in range(2))
        scale, one = 1 / math.sqrt(d), torch.ones(b, kv_heads, device="cuda")
        first = table[0, : -(-lengths[0] // case.page_size)].long()
        gather = lambda cache: cache.view(torch.uint8 if case.kv == "fp8" else cache.dtype)[first].view(cache.dtype).float()
        keys, values = (gather(cache[0]).reshape(-1, kv_heads, d)[: lengths[0]] for cache in (k, v))
        want = self.reference(q[0][0], keys, values, True, scale)
        scales = {"k_descale": one, "v_descale": one} if case.kv == "fp8" else {}
        if case.q == "fp8":
            scales["q_descale"] = one
        calls = []
        for name, module in self.flash.items():
            for splits in (0, 1, 2, 4, 8, 16, 32) if name == "fa3" else (0,):
                calls.append((name if splits == 0 else name + ".best", lambda i, module=module, splits=splits: first_result(
                    module.flash_attn_with_kvcache(q[i], k[i], v[i], cache_seqlens=used, page_table=table, softmax_scale=scale,
                                                   causal=True, num_splits=splits, **scales))))  # fmt: skip
        is_for_xqa = case.q == "bf16" and (tokens, case.page_size, d, heads) == (1, 64, 128, 8 * kv_heads)
        if self.flashinfer and is_for_xqa:
            workspace = torch.zeros(128 << 20, dtype=torch.uint8, device="cuda")
            calls.append(("fi.xqa", lambda i: self.flashinfer.trtllm_batch_decode_with_kv_cache(
                q[i].view(b, heads, d), (k[i], v[i]), workspace, table, used, max(lengths), bmm1_scale=scale, bmm2_scale=1.0,
                kv_layout="NHD", backend="xqa")))  # fmt: skip
        return self.row(case, num_bytes, 4 * sum(lengths) * tokens * heads * d, buffers, want, calls)

    def latent(self, case):
        torch, b, tokens = self.torch, case.batch, case.num_tokens
        pages, num_bytes = -(-case.num_keys // 64), b * case.num_keys * 576 * 2
        buffers = self.buffers_of(num_bytes)
        cache = [self.randn(b * pages, 64, 1, 576) for _ in range(buffers)]
        q = [self.randn(b, tokens, case.num_heads, 576) for _ in range(buffers)]
        table = torch.randperm(b * pages, dtype=torch.int32).view(b, pages).cuda()
        used, scale = self.int32([case.num_keys] * b), 1 / math.sqrt(192)
        rows = cache[0][table[0].long()].reshape(-1, 1, 576)[: case.num_keys]
        want = self.reference(q[0][0], rows, rows[..., :512], True, scale)
        calls = []
        for name, module in self.mla.items():
            schedule = module.get_mla_metadata()  # once per step, for all layers
            calls.append((name, lambda i, module=module, schedule=schedule: first_result(module.flash_mla_with_kvcache(
                q[i], cache[i], table, used, 512, *schedule, scale, causal=tokens > 1))))  # fmt: skip
        flops = 2 * b * tokens * case.num_heads * case.num_keys * (576 + 512)
        return self.row(case, num_bytes, flops, buffers, want, calls)

    def prefill(self, case):
        torch, (heads, kv_heads), b, new = self.torch, case.heads, case.batch, case.num_tokens
        d, v_dim, keys = case.dim, case.v_dim or case.dim, new + case.prefix
        kv = case.kv or case.dtype
        shapes = ((new, heads, d, case.dtype), (keys, kv_heads, d, kv), (keys, kv_heads, v_dim, kv))
        q, k, v = ([self.randn(b * rows, h, dim, dtype=dtype) for _ in range(2)] for rows, h, dim, dtype in shapes)
        pairs, scale = b * (new * keys - (new * (new - 1) // 2 if case.causal else 0)), 1 / math.sqrt(d)
        cu_q, cu_k = (self.int32([i * rows for i in range(b + 1)]) for rows in (new, keys))
        one = torch.ones(b, kv_heads, device="cuda")
        scales = {"k_descale": one, "v_descale": one} if "fp8" in (case.dtype, case.kv) else {}
        if case.dtype == "fp8":
            scales["q_descale"] = one
        rows = lambda x: x.view(b, new, *x.shape[1:])
        pages = lambda x: x.view(-1, case.page_size, *x.shape[1:])
        first_keys = contiguous_keys = [x[0][:keys].float() for x in (k, v)]  # of the first request only
        if case.page_size:
            table, used = self.shuffled_pages([keys] * b, case.page_size)[0], self.int32([keys] * b)
            first_keys = [pages(x[0].float())[table[0].long()].flatten(0, 1)[:keys] for x in (k, v)]
        # All scores of a long prompt would exceed the GPU's memory.
        checked = min(new, (1 << 24) // keys)
        seen = case.prefix + checked if case.causal else keys
        want = self.reference(q[0][:checked], *(x[:seen] for x in first_keys), case.causal, scale)
        calls, wants = [], {}
        contiguous = lambda module: lambda i: first_result(module.flash_attn_varlen_func(
            q[i], k[i], v[i], cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=new, max_seqlen_k=keys, softmax_scale=scale,
            causal=case.causal, **scales))  # fmt: skip
        for name, module in self.flash.items():
            if case.page_size:
                calls.append((name, lambda i, module=module: first_result(module.flash_attn_with_kvcache(
                    rows(q[i]), pages(k[i]), pages(v[i]), cache_seqlens=used, page_table=table, softmax_scale=scale,
                    causal=case.causal, **scales))))  # fmt: skip
            else:
                calls.append((name, contiguous(module)))
        if case.page_size:  # the cost of pages, in alternation
            calls.append(("attend.contiguous", contiguous(self.flash["attend"])))
            wants["attend.contiguous"] = self.reference(q[0][:checked], *(x[:seen] for x in contiguous_keys), case.causal, scale)
        if "fp8" not in (case.dtype, case.kv) and not case.prefix and not case.page_size:
            split = lambda x: x.view(b, -1, *x.shape[1:]).transpose(1, 2)
            for name, backend in (("fa2", "FLASH_ATTENTION"), ("cudnn", "CUDNN_ATTENTION")):
                calls.append((name, lambda i, backend=backend: self.sdpa(
                    backend, split(q[i]), split(k[i]), split(v[i]), case.causal, heads != kv_heads)))  # fmt: skip
        num_bytes = sum(x[0].nbytes for x in (q, k, v))
        return self.row(case, num_bytes, 2 * pairs * heads * (d + v_dim), 2, want, calls, wants)

    def sdpa(self, backend, q, k, v, causal, grouped):
        attention = self.torch.nn.attention
        with attention.sdpa_kernel(getattr(attention.SDPBackend, backend)):
            out = self.torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
        return out.transpose(1, 2)


def first_result(result):
    return result[0] if isinstance(result, (tuple, list)) else result


def load(name):
    try:
        return importlib.import_module(name)
    except Exception as error:
        print(f"skipped {name}: {type(error).__name__} {str(error)[:150]}", file=sys.stderr)
        return None


def load_sgl_kernel(torch):
    """Loads only sglang-kernel's attention modules, since its __init__ has further requirements."""
    folder = next((path for path in (os.path.join(p, "sgl_kernel") for p in sys.path)
                   if os.path.exists(os.path.join(path, "flash_attn.py"))), None)  # fmt: skip
    if folder is None:
        print("skipped sglang-kernel: not installed", file=sys.stderr)
        return {}
    package = types.ModuleType("sgl_kernel")
    package.__path__ = [folder]
    sys.modules["sgl_kernel"] = package
    modules = {}
    for module, library in (("flash_attn", "flash_ops"), ("flash_mla", "flashmla_ops")):
        try:
            torch.ops.load_library(os.path.join(folder, library + ".abi3.so"))
            sys.modules["sgl_kernel." + library] = types.ModuleType(library)
            setattr(package, library, sys.modules["sgl_kernel." + library])
            modules[module] = importlib.import_module("sgl_kernel." + module)
        except Exception as error:
            print(f"skipped sgl_kernel.{module}: {str(error)[:150]}", file=sys.stderr)
    return modules


def truncate_and_normalize(case):
    """Returns a row's name in the tables, without default values."""
    kind, rest = case.split(" ", 1)
    if kind == "decode":
        rest = rest.replace("qbf16 kvbf16 ", "").replace("qbf16 kvfp8", "fp8 K/V,").replace("qfp8 kvfp8", "fp8 q and K/V,")
        rest = rest.replace("page64 ", "")
    return rest.replace("bf16 kvfp8", "fp8 K/V,").replace("fp8 d", "fp8 q, d").replace("bf16 ", "")


def show(figure):
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.1f}"


def table(path):
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    kinds = {}
    for row in rows:
        if row["case"] != "roofs" and "attend" in row["us"]:
            kinds.setdefault(row["case"].split(" ", 1)[0], []).append(row)
    for kind, chosen in kinds.items():
        print(f"\n| {kind} | attend, us | best peer | others | ratio |\n|---|---|---|---|---|")
        for row in chosen:
            best = {}
            for name, us in row["us"].items():
                name = NAMES.get(name.removesuffix(".best"))
                if name:
                    best[name] = min(us, best.get(name, us))
            peers = [f"{name} {show(us)}" for name, us in sorted(best.items(), key=lambda pair: pair[1])]
            times, others = f"{row['attend / best peer']:.2f}" if peers else "", peers[1:]
            if alone := row["us"].get("attend.contiguous"):
                others.append(f"attend without pages {show(alone)}")
            print(f"| {shortened(row['case'])} | {show(row['us']['attend'])} | {''.join(peers[:1])} | {', '.join(others)} "
                  f"| {times} |")  # fmt: skip
    print()
    kinds = {kind: [row for row in chosen if row["attend / best peer"]] for kind, chosen in kinds.items()}
    e4m3 = [row for row in kinds.get("prefill", []) if "fp8" in row["case"]]
    paged = [row for row in kinds.get("prefill", []) if "page" in row["case"]]
    kinds["prefill"] = [row for row in kinds.get("prefill", []) if row not in e4m3 + paged]
    for kind, chosen in {**kinds, "fp8 queries in prefill": e4m3, "pages in prefill": paged}.items():
        if shares := [row["attend / best peer"] for row in chosen]:
            mean = math.exp(sum(map(math.log, shares)) / len(shares))
            print(f"{kind}: geometric mean {mean:.3f}, {min(shares):.2f} to {max(shares):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--skip", action="append", default=[], metavar="NAME")
    parser.add_argument("--table", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.table:
        table(arguments.table)
        return
    bench = Bench(arguments.skip)
    bench.torch.manual_seed(0)
    print(json.dumps(bench.limits()), flush=True)
    kinds = {Decode: bench.decode, Mla: bench.latent, Prefill: bench.prefill}
    for case in CASES:
        if not arguments.only or any(word in case.name for word in arguments.only):
            print(json.dumps(kinds[type(case)](case)), flush=True)


if __name__ == "__main__":
    main()
