"""Compiled code that calls attend: no graph break, the same results, and declared mutations."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.compiler, "substitute_in_graph"):
    pytest.skip("a torch without substitute_in_graph", allow_module_level=True)

from attend import flash_attn_interface as flash  # noqa: E402
from attend import flash_mla  # noqa: E402
from attend.sgl_kernel import flash_attn  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"))]


def int32(device, *values):
    return torch.tensor(values, dtype=torch.int32, device=device)


@pytest.fixture(params=DEVICES)
def paged(request):
    """q [3, 2, 4, 64], caches of 9 pages of 16, page table, lengths."""
    torch.manual_seed(3)
    device, dtype = request.param, torch.bfloat16
    q = torch.randn(3, 2, 4, 64, device=device, dtype=dtype)
    k, v = (torch.randn(9, 16, 2, 64, device=device, dtype=dtype) for _ in range(2))
    return q, k, v, torch.randperm(9).int().view(3, 3).to(device), int32(device, 40, 3, 20)


def compare(call, *tensors):
    """Checks that `call` returns and writes the same with and without compilation, without a graph break."""
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    mine, theirs = ([x.clone() for x in tensors] for _ in range(2))
    with torch.no_grad():
        want, got = call(*mine), compiled(*theirs)
    want, got = ((x,) if isinstance(x, torch.Tensor) else x for x in (want, got))
    assert len(want) == len(got)
    for a, b in zip([*want, *mine], [*got, *theirs]):
        assert a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    return mine


@pytest.mark.parametrize("options", [{}, dict(return_attn_probs=True), dict(window_size=(3, 0), softcap=2.0)], ids=str)
def test_dense_attention(paged, options):
    q, k, v = paged[0], paged[1][:3], paged[2][:3]
    compare(lambda q, k, v: flash.flash_attn_func(q * 2, k, v, causal=True, **options), q, k, v)


def test_packed_attention(paged):
    qkv = torch.cat([paged[0], paged[1][:3, :2], paged[2][:3, :2]], 2)
    compare(lambda qkv: flash.flash_attn_qkvpacked_func(qkv, num_heads_q=4, causal=True), qkv)


@pytest.mark.parametrize("with_lse", [False, True])
def test_ragged_attention(paged, with_lse):
    q, cu = paged[0].flatten(0, 1), int32(paged[0].device, 0, 1, 6)
    k, v = (x.flatten(0, 1)[:6] for x in paged[1:3])
    call = lambda q, k, v, cu: flash.flash_attn_varlen_func(
        q + 1, k, v, cu, cu, 5, 5, causal=True, return_softmax_lse=with_lse, q_descale=0.5
    )
    compare(call, q, k, v, cu)


@pytest.mark.parametrize("options", [{}, dict(return_softmax_lse=True, num_splits=1), dict(k_descale=2.0)], ids=str)
def test_attention_over_pages(paged, options):
    call = lambda q, k, v, table, lengths: flash.flash_attn_with_kvcache(
        q, k, v, cache_seqlens=lengths, page_table=table, causal=True, **options
    )
    compare(call, *paged)


def test_tensors_as_scalar_arguments(paged):
    q, k, v, table, lengths = paged
    descale = torch.full((3, 2), 0.5, device=q.device)
    call = lambda q, k, v, table, descale: flash.flash_attn_with_kvcache(
        q, k[table[:, 0].long()], v[table[:, 0].long()], cache_seqlens=9, v_descale=descale, causal=True
    )
    compare(call, q, k, v, table, descale)


@pytest.mark.parametrize("into", [False, True])
def test_appended_keys_are_written(paged, into):
    q, k, v, table, lengths = paged
    new = torch.randn(2, 3, 2, 2, 64, device=q.device, dtype=q.dtype)

    def call(q, k, v, table, lengths, new, out):
        keys = new * 2
        result = flash.flash_attn_with_kvcache(
            q, k, v, keys[0], keys[1], cache_seqlens=lengths, page_table=table, causal=True, out=out if into else None
        )
        return result + 1, k.float().sum()

    written = compare(call, *paged, new, torch.zeros_like(q))
    page, offset = table[1, 3 // 16], 3 % 16
    assert torch.equal(written[1][page, offset], 2 * new[0, 1, 0]) and written[6].any() == into


def test_results_are_written_to_passed_tensors(paged):
    q = paged[0].flatten(0, 1)

    def call(q, k, v, table, lengths, out):
        cu = torch.arange(0, 7, 2, dtype=torch.int32, device=q.device)
        flash.flash_attn_varlen_func(
            q, k, v, cu, None, 2, seqused_k=lengths, page_table=table, causal=True, out=out, return_softmax_lse=True
        )
        return out * 2

    assert compare(call, q, *paged[1:], torch.zeros_like(q))[5].any()


def test_rows_of_a_page_table(paged):
    rows = int32(paged[0].device, 2, 0, 0)
    call = lambda q, k, v, table, lengths, rows: flash.flash_attn_with_kvcache(
        q, k, v, cache_seqlens=lengths, page_table=table, cache_batch_idx=rows, causal=True
    )
    compare(call, *paged, rows)


def test_plans_are_ignored(paged):
    q, k, v, table, lengths = paged
    plan = flash.get_scheduler_metadata(3, 2, 48, 4, 2, 64, lengths, causal=True)
    call = lambda q, k, v, table, lengths: flash.flash_attn_with_kvcache(
        q, k, v, cache_seqlens=lengths, page_table=table, causal=True, scheduler_metadata=plan
    )
    compare(call, *paged)


@pytest.mark.parametrize("seqlen_q", [1, 2])
@pytest.mark.parametrize("made_inside", [False, True])
def test_mla(paged, seqlen_q, made_inside):
    device, table, lengths = paged[0].device, paged[3], paged[4]
    q = torch.randn(3, seqlen_q, 8, 576, device=device, dtype=torch.bfloat16)
    cache = torch.randn(9, 16, 1, 576, device=device, dtype=torch.bfloat16)
    plan = flash_mla.get_mla_metadata()

    def call(q, cache, table, lengths):
        metadata = flash_mla.get_mla_metadata() if made_inside else plan
        out, lse = flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 512, *metadata, causal=True)
        return out * 2, lse

    compare(call, q, cache, table, lengths)


def test_calls_of_sgl_kernel(paged):
    call = lambda q, k, v, table, lengths: flash_attn.flash_attn_with_kvcache(
        q, k, v, cache_seqlens=lengths, page_table=table, causal=True, window_size=(8, 0), ver=3
    )
    compare(call, *paged)


def test_dynamic_shapes(paged):
    q, k, v, table, lengths = paged
    torch.compiler.reset()
    call = lambda *args: flash.flash_attn_with_kvcache(*args[:3], page_table=args[3], cache_seqlens=args[4], causal=True) * 2
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch in (2, 3):
        args = q[:batch], k, v, table[:batch], lengths[:batch]
        assert torch.equal(compiled(*args), call(*args))


@pytest.mark.parametrize("name", ["flash_attention", "flash_attention_append", "flash_attention_out", "flash_attention_append_out"])
def test_operators_pass_opcheck(paged, name):
    import torch._dynamo  # this import registers the operators

    q, k, v, table, lengths = paged
    new = torch.randn(3, 1, 2, 64, device=q.device, dtype=q.dtype) if "append" in name else None
    arguments = {argument.name: None for argument in getattr(torch.ops.attend, name).default._schema.arguments[3:]}
    arguments.update(
        k=new, v=new, rotary_interleaved=True, cache_seqlens=lengths, page_table=table, causal=True, window_size=[-1, -1],
        attention_chunk=0, softcap=0.0, num_splits=0, return_softmax_lse=True, keys_are_cache=True,
    )  # fmt: skip
    if name.endswith("out"):
        arguments["out"] = torch.empty_like(q)
    from torch import library

    library.opcheck(getattr(torch.ops.attend, name).default, (q, k, v), arguments)


def test_attend_does_not_import_the_compiler_but_registers_operators():
    program = (
        "import attend.flash_attn_interface, sys; assert 'torch' not in sys.modules; import torch;"
        "assert 'torch._dynamo' not in sys.modules and not hasattr(torch.ops.attend, 'flash_mla');"
        "import torch._dynamo; assert torch.ops.attend.flash_mla; print(sys.meta_path)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "attend" not in done.stdout, done.stderr


def test_unknown_compiler_versions_can_be_imported():
    program = (
        "import torch, warnings, attend.flash_mla; del attend.flash_mla.get_mla_metadata;"
        "kept = warnings.catch_warnings(record=True); found = kept.__enter__(); import torch._dynamo;"
        "print([str(w.message) for w in found if 'attend.torch_ops' in str(w.message)])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "compiled code that calls attend has graph breaks" in done.stdout, done.stderr
