"""torch tensors that record gradients or have no device memory."""

import attend
import pytest
from attend import flash_attn_interface as flash, flash_mla

torch = pytest.importorskip("torch")


class OlderTensor(torch.Tensor):
    """Tensors of a torch without exchange functions, which are passed through __dlpack__."""

    __dlpack_c_exchange_api__ = None


OlderTensor.__module__ = "torch"


def as_torch(tensor):
    return tensor


def as_older_torch(tensor):
    return tensor.as_subclass(OlderTensor)


@pytest.fixture(params=[as_torch, as_older_torch], ids=["exchange functions", "__dlpack__"])
def convert(request):
    return request.param


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


Q = lambda **more: torch.ones(1, 2, 2, 32, **more)
CACHE = lambda **more: torch.ones(1, 16, 2, 32, **more)
TOKENS = lambda **more: torch.ones(2, 2, 32, **more)
TABLE = int32(0).reshape(1, 1)


def dense(q, k, v, sinks):
    return flash.flash_attn_func(q, k, v, sinks=sinks)


def ragged(q, k, v, out):
    return flash.flash_attn_varlen_func(q, k, v, int32(0, 2), int32(0, 2), 2, out=out)



def descaled(q, k_cache, v_cache, q_descale, k_descale, v_descale):
    descales = dict(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    return flash.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=3, **descales)


def rotated(q, k_cache, v_cache, k, v, rotary_cos, rotary_sin):
    rotary = dict(rotary_cos=rotary_cos, rotary_sin=rotary_sin)
    return flash.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=3, **rotary)


def latent(q, k_cache, attn_sink):
    return flash_mla.flash_mla_with_kvcache(q, k_cache, TABLE, int32(3), 16, attn_sink=attn_sink)


def own_words(q, k, v, sinks, out):
    return attend.attention(q, k, v, int32(0, 2), int32(3), page_table=TABLE, sinks=sinks, out=out)


def own_latent(q, q_rope, latent, out):
    return attend.mla(q, q_rope, latent, int32(0, 2), int32(3), 0.1, page_table=TABLE, out=out)


def stored(k, v, k_cache, v_cache):
    return attend.store_kv(k, v, k_cache, v_cache, int32(0, 1))


def stored_latent(latent, rope, cache):
    return attend.store_mla(latent, rope, cache, int32(0, 1))


def merged(out_a, lse_a, out_b, lse_b):
    return attend.merge(out_a, lse_a, out_b, lse_b)


DESCALE = lambda **more: torch.tensor([[0.5, 2.0]], **more)
SINKS = lambda **more: torch.ones(2, **more)
LSE = lambda **more: torch.ones(2, 2, **more)
ROWS = lambda **more: torch.ones(2, 16, **more)
LATENT = lambda **more: torch.ones(1, 16, 32, **more)
ENTRIES = {
    dense: dict(q=Q, k=CACHE, v=CACHE, sinks=SINKS),
    ragged: dict(q=TOKENS, k=TOKENS, v=TOKENS, out=TOKENS),
    descaled: dict(q=Q, k_cache=CACHE, v_cache=CACHE, q_descale=DESCALE, k_descale=DESCALE, v_descale=DESCALE),
    rotated: dict(
        q=Q, k_cache=CACHE, v_cache=CACHE, k=Q, v=Q,
        rotary_cos=lambda **more: torch.ones(16, 8, **more), rotary_sin=lambda **more: torch.ones(16, 8, **more),
    ),
    latent: dict(q=Q, k_cache=lambda **more: torch.ones(1, 16, 1, 32, **more), attn_sink=SINKS),
    own_words: dict(q=TOKENS, k=CACHE, v=CACHE, sinks=SINKS, out=TOKENS),
    own_latent: dict(
        q=lambda **more: torch.ones(2, 2, 24, **more), q_rope=lambda **more: torch.ones(2, 2, 8, **more), latent=LATENT,
        out=lambda **more: torch.ones(2, 2, 24, **more),
    ),
    stored: dict(k=TOKENS, v=TOKENS, k_cache=CACHE, v_cache=CACHE),
    stored_latent: dict(latent=ROWS, rope=ROWS, cache=LATENT),
    merged: dict(out_a=TOKENS, lse_a=LSE, out_b=TOKENS, lse_b=LSE),
}  # fmt: skip
ARGUMENTS = [pytest.param(entry, name, id=f"{entry.__name__}, {name}") for entry in ENTRIES for name in ENTRIES[entry]]


@pytest.mark.parametrize("entry, name", [argument for argument in ARGUMENTS if argument.values[0] is not dense])
def test_tensors_that_require_grad_are_rejected_while_gradients_are_recorded(convert, entry, name):
    arguments = {other: convert(make()) for other, make in ENTRIES[entry].items()}
    entry(**arguments)
    arguments[name] = convert(ENTRIES[entry][name](requires_grad=True))
    message = rf"^{name} requires grad: attend computes forward only; call under torch\.no_grad\(\)$"
    with pytest.raises(attend.Error, match=message) as caught:
        entry(**arguments)
    assert caught.value.code == "unsupported"
    with torch.no_grad():
        entry(**arguments)
    with torch.inference_mode():
        entry(**arguments)


def test_parameters_and_their_results_require_grad():
    k = CACHE()
    for q in (torch.nn.Parameter(Q()), torch.nn.Parameter(Q()) * 2):
        with pytest.raises(attend.Error, match="^q requires grad: "):
            flash.flash_attn_with_kvcache(q, k, k)
        flash.flash_attn_with_kvcache(q.detach(), k, k)


def varlen(q, k, v, sinks):
    cu = int32(0, 2), int32(0, 16)
    return flash.flash_attn_varlen_func(q[0], k[0], v[0], *cu, 2, sinks=sinks, return_softmax_lse=True)


@pytest.mark.parametrize("call", [dense, varlen], ids=["flash_attn_func", "flash_attn_varlen_func"])
@pytest.mark.parametrize("name", ["q", "k", "v", "sinks"])
def test_functions_with_a_backward_in_flash_attention_reject_only_gradients(convert, call, name):
    arguments = {other: convert(torch.randn_like(make())) for other, make in ENTRIES[dense].items()}
    want = call(**arguments)
    arguments[name] = convert(arguments[name].requires_grad_())
    got = call(**arguments)
    for x, y in zip(*(result if isinstance(result, tuple) else (result,) for result in (got, want))):
        assert x.requires_grad and torch.equal(x, y)
        with pytest.raises(attend.Error, match="^flash_attn_.*: backward: attend computes forward only$") as caught:
            torch.autograd.grad(x.sum(), arguments[name])
        assert caught.value.code == "unsupported"


def test_recording_calls_name_mismatched_arguments():
    with pytest.raises(attend.Error, match="^k .*: expected a head_dim of 32, as q"):
        flash.flash_attn_func(Q(requires_grad=True), CACHE()[..., :16], CACHE())


def test_results_without_gradients_are_equal_and_require_none(convert):
    q, k = torch.randn(1, 2, 2, 32), torch.randn(1, 16, 2, 32)
    want = flash.flash_attn_func(q, k, k)
    with torch.no_grad():
        out = flash.flash_attn_func(convert(q.requires_grad_()), convert(k), convert(k))
    assert not out.requires_grad
    torch.testing.assert_close(out, want, rtol=0, atol=0)


@pytest.mark.parametrize("entry, name", ARGUMENTS)
def test_meta_tensors_are_rejected_by_name(convert, entry, name):
    arguments = {other: convert(make()) for other, make in ENTRIES[entry].items()}
    arguments[name] = convert(ENTRIES[entry][name](device="meta"))
    message = rf"^{name}: .*meta.* \(torch\..*Tensor\): expected one that can be exported, on the CPU or a GPU$"
    with pytest.raises(attend.Error, match=message) as caught:
        entry(**arguments)
    assert caught.value.code == "unsupported"


def test_meta_lengths_and_tables_are_rejected_by_name(convert):
    arguments = dict(page_table=TABLE, cache_seqlens=int32(3))
    for name, tensor in arguments.items():
        with pytest.raises(attend.Error, match=f"^{name}: .*meta"):
            flash.flash_attn_with_kvcache(Q(), CACHE(), CACHE(), **{**arguments, name: convert(tensor.to("meta"))})
