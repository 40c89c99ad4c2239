"""Direct entries of kernels: attention, mla, store_kv, store_mla, merge, and information about the library."""

import re

import attend
import numpy as np
import pytest
import reference
from conftest import Numpy, check

SEQLENS_Q, SEQLENS_KV, PAGE_SIZE = [2, 1, 4], [7, 1, 30], 8


class Batch:
    """Three ragged requests over one paged cache."""

    def __init__(self, rng, library):
        self.maker = library
        self.cu_q = np.cumsum([0] + SEQLENS_Q).astype(np.int32)
        pages = [-(-n // PAGE_SIZE) for n in SEQLENS_KV]
        self.indptr = np.cumsum([0] + pages).astype(np.int32)
        self.ids = rng.permutation(self.indptr[-1] + 2)[: self.indptr[-1]].astype(np.int32)
        self.k, self.v = (rng.standard_normal((self.indptr[-1] + 2, PAGE_SIZE, 2, 32), dtype=np.float32) for _ in range(2))
        self.q = rng.standard_normal((self.cu_q[-1], 4, 32), dtype=np.float32)

    def pages(self, r):
        return self.ids[self.indptr[r] : self.indptr[r + 1]]

    def keys(self, r):
        return (reference.gather(x, self.pages(r), SEQLENS_KV[r]) for x in (self.k, self.v))

    def index(self, kind):
        to = self.maker.tensor
        if kind == "CSR":
            return dict(kv_indptr=to(self.indptr), kv_indices=to(self.ids))
        table = np.full((3, 5), 2**30, np.int32)
        for r in range(3):
            table[r, : len(self.pages(r))] = self.pages(r)
        if kind == "page table":
            return dict(page_table=to(table))
        # All rows of the pool except 2, 0 and 4 belong to other requests.
        rows = np.full((5, 5 * PAGE_SIZE), 2**30, np.int32)
        for r, row in enumerate([2, 0, 4]):
            slots = self.pages(r)[:, None] * PAGE_SIZE + np.arange(PAGE_SIZE)
            rows[row, : slots.size] = slots.reshape(-1)
        return dict(req_to_token=to(rows), request_rows=to(np.array([2, 0, 4], np.int32)))

    def attend(self, index, **arguments):
        to = self.maker.tensor
        return attend.attention(
            to(self.q), to(self.k), to(self.v), to(self.cu_q), to(np.array(SEQLENS_KV, np.int32)), **index, **arguments
        )


@pytest.mark.parametrize("kind", ["page table", "CSR", "request rows"])
@pytest.mark.parametrize("split_rule", ["balanced", "fixed", "none"])
def test_attention_agrees_with_the_reference_for_every_kind_of_index(rng, library, kind, split_rule):
    batch = Batch(rng, library)
    out, lse = batch.attend(batch.index(kind), split_rule=split_rule, return_lse=True)
    for r in range(3):
        rows = slice(batch.cu_q[r], batch.cu_q[r + 1])
        want, want_lse = reference.attend(batch.q[rows], *batch.keys(r), causal=True)
        check(library.array(out)[rows], want)
        check(library.array(lse)[rows], want_lse.T)


def test_contiguous_keys_need_no_pages(rng, library):
    batch = Batch(rng, library)
    keys = [np.concatenate(x)[:, None] for x in zip(*(batch.keys(r) for r in range(3)))]
    to = library.tensor
    cu = np.cumsum([0] + SEQLENS_KV).astype(np.int32)
    out = attend.attention(
        to(batch.q), to(keys[0]), to(keys[1]), to(batch.cu_q), to(np.array(SEQLENS_KV, np.int32)), cu_seqlen_kv=to(cu)
    )
    np.testing.assert_array_equal(library.array(out), library.array(batch.attend(batch.index("page table"))))


def test_tree_mask_selects_new_tokens(rng, library):
    batch, to = Batch(rng, library), library.tensor
    # New tokens of request 2: a root with two children, the second of which has one child.
    bits = {3: [0], 4: [0, 1], 5: [0, 2], 6: [0, 2, 3]}
    words = np.array([[1], [3], [1]] + [[sum(1 << b for b in seen)] for seen in bits.values()], np.uint64)
    positions = np.array([5, 6, 0, 26, 27, 27, 28], np.int32)
    out = batch.attend(batch.index("page table"), tree_mask=to(words), positions=to(positions), max_seqlen_q=4)
    k, v = batch.keys(2)
    for token, seen in bits.items():
        keys = list(range(26)) + [26 + b for b in seen]
        want, _ = reference.attend(batch.q[token : token + 1], k[keys], v[keys])
        check(library.array(out)[token : token + 1], want)


def test_siblings_of_a_tree_have_the_same_window(rng, library):
    # Many children of one root, in several row tiles. All of them are at the position after it.
    prefix, new, window = 40, 150, 10
    to, total = library.tensor, prefix + new
    q = rng.standard_normal((new, 1, 32), dtype=np.float32)
    k, v = (rng.standard_normal((total, 1, 1, 32), dtype=np.float32) for _ in range(2))
    words = np.zeros((new, -(-new // 64)), np.uint64)
    words[:, 0] = 1
    for j in range(new):
        words[j, j // 64] |= np.uint64(1 << j % 64)
    positions = np.array([prefix] + [prefix + 1] * (new - 1), np.int32)
    to_ints = lambda *numbers: to(np.array(numbers, np.int32))
    out = attend.attention(
        to(q), to(k), to(v), to_ints(0, new), to_ints(total), cu_seqlen_kv=to_ints(0, total), window_left=window,
        tree_mask=to(words), positions=to(positions),
    )  # fmt: skip
    for j in range(1, new):
        keys = list(range(prefix + 1 - window, prefix)) + [prefix, prefix + j]
        want, _ = reference.attend(q[j : j + 1], k[keys, 0], v[keys, 0])
        check(library.array(out)[j : j + 1], want)


def test_attention_requires_exactly_one_index(rng, library):
    batch = Batch(rng, library)
    with pytest.raises(attend.Error, match="0 indices: expected one of page_table"):
        batch.attend({})
    with pytest.raises(attend.Error, match="2 indices: expected one of page_table"):
        batch.attend({**batch.index("page table"), **batch.index("CSR")})


@pytest.mark.parametrize(
    "kind, name, value, message",
    [
        ("request rows", "request_rows", [2, 5, 4], r"request_rows\[1\] is 5: req_to_token has 5 rows"),
        ("CSR", "kv_indptr", [0, 1, 2, 9], "kv_indptr of request 2 from 2 to 9: it has 30 keys"),
        ("CSR", "kv_indptr", [0, 1, 2, 5], "kv_indptr of request 2 from 2 to 5: it has 30 keys"),
        ("page table", "page_table", [[0] * 5, [0] * 5, [0, 1, 99, 2, 0]], "page id 99 at position 16 of request 2"),
    ],
)
def test_indices_are_checked_on_the_cpu(rng, kind, name, value, message):
    batch = Batch(rng, Numpy())
    with pytest.raises(attend.Error, match=message):
        batch.attend({**batch.index(kind), name: np.array(value, np.int32)})


def test_keys_are_stored_at_their_slots(rng, library):
    k, v = (library.tensor(rng.standard_normal((3, 2, 16), dtype=np.float32)) for _ in range(2))
    k_cache, v_cache = (library.tensor(np.zeros((4, 8, 2, 16), np.float32)) for _ in range(2))
    attend.store_kv(k, v, k_cache, v_cache, library.tensor(np.array([9, -1, 31], np.int32)), k_scale=2.0)
    want = np.zeros((32, 2, 16), np.float32)
    want[[9, 31]] = library.array(k)[[0, 2]] / 2
    np.testing.assert_array_equal(library.array(k_cache).reshape(32, 2, 16), want)
    want[[9, 31]] = library.array(v)[[0, 2]]
    np.testing.assert_array_equal(library.array(v_cache).reshape(32, 2, 16), want)


def test_slots_are_checked_on_the_cpu():
    x, cache = np.ones((1, 1, 8), np.float32), np.zeros((2, 4, 1, 8), np.float32)
    with pytest.raises(attend.Error, match="slot 8: the cache has 8"):
        attend.store_kv(x, x, cache, cache, np.array([8], np.int32))


def test_read_only_cache_is_rejected():
    x, cache = np.ones((1, 1, 8), np.float32), np.zeros((2, 4, 1, 8), np.float32)
    cache.flags.writeable = False
    with pytest.raises((attend.Error, BufferError), match="(?i)read-?only"):
        attend.store_kv(x, x, cache, cache, np.array([0], np.int32))


def test_one_slot_per_token_is_required():
    x, cache = np.ones((1, 1, 8), np.float32), np.zeros((2, 4, 1, 8), np.float32)
    with pytest.raises(attend.Error, match="slots of 2 entries: expected 1, one per token"):
        attend.store_kv(x, x, cache, cache, np.array([0, 1], np.int32))


def test_storing_and_merging_nothing_is_accepted():
    none, cache = np.ones((0, 1, 8), np.float32), np.zeros((2, 4, 1, 8), np.float32)
    attend.store_kv(none, none, cache, cache, np.zeros(0, np.int32))
    assert (cache == 0).all()
    assert [x.shape for x in attend.merge(none, none[..., 0], none, none[..., 0])] == [(0, 1, 8), (0, 1)]


ONE = np.ones((1, 1, 8), np.float32)
ONE_PAGE, ZERO, INT0 = ONE[None], np.zeros((1, 1), np.int32), np.zeros(1, np.int32)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(q=None), "q None: expected a tensor"),
        (dict(seqlen_kv=None), "seqlen_kv None: expected a tensor"),
        (dict(request_rows=INT0), "req_to_token, request_rows: expected both, or neither"),
        (dict(kv_indptr=np.array([0, 1], np.int32)), "kv_indptr, kv_indices: expected both, or neither"),
        (dict(positions=INT0), "positions: expected None without tree_mask"),
        (dict(positions=INT0, tree_mask=np.ones((1, 0), np.uint64)), "tree_mask .*: expected uint64 .num_tokens, words"),
        (dict(tree_mask=np.ones((1, 1), np.int64)), "tree_mask of int64: expected uint64"),
        (dict(cu_seqlen_q=np.array([1, 1], np.int32)), r"cu_seqlen_q\[0\] is 1: expected 0"),
        (dict(max_seqlen_q=0), "max_seqlen_q 0: request 0 has 1 queries"),
        (dict(max_seqlen_q=2.0), "max_seqlen_q 2.0: expected an int"),
        (dict(out=ONE[0]), r"out .*: expected \[1, 1, 8\]"),
        (dict(logit_cap=float("inf")), "logit_cap inf: expected above 0 and finite"),
        (dict(k_scale=float("nan")), "k_scale nan: expected above 0 and finite"),
        (dict(q=ONE[..., :0]), "q .*: expected a head_dim above 0"),
        (dict(k=np.ones((1, 0, 1, 8), np.float32)), "page_size 0: expected a power of two from 1 to 256"),
        (dict(k=np.ones((1, 3, 1, 8), np.float32)), "page_size 3: expected a power of two from 1 to 256"),
    ],
)
def test_invalid_attention_arguments_are_rejected_by_name(arguments, message):
    call = dict(
        q=ONE, k=ONE_PAGE, v=ONE_PAGE, cu_seqlen_q=np.array([0, 1], np.int32), seqlen_kv=INT0 + 1, page_table=ZERO
    )
    assert attend.attention(**call).shape == ONE.shape
    with pytest.raises(attend.Error, match="^" + message):
        attend.attention(**{**call, **arguments})


@pytest.mark.parametrize("page_size", [0, 3])
def test_csr_requires_page_sizes_that_are_powers_of_two(page_size):
    cache = np.ones((1, page_size, 1, 8), np.float32)
    with pytest.raises(attend.Error, match=f"page_size {page_size}: expected a power of two"):
        attend.attention(
            ONE, cache, cache, np.array([0, 1], np.int32), INT0, kv_indptr=np.array([0, 1], np.int32), kv_indices=INT0
        )


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: attend.store_kv(None, ONE, ONE_PAGE, ONE_PAGE, INT0), "k None"),
        (lambda: attend.store_kv(ONE, ONE, ONE_PAGE, ONE_PAGE, INT0, k_scale=float("inf")), "k_scale inf"),
        (lambda: attend.store_mla(ONE[0], ONE[0], None, INT0), "cache None"),
        (lambda: attend.merge(ONE, None, ONE, ONE[0]), "lse_a None"),
        (lambda: attend.mla(ONE, ONE, np.ones((1, 1, 16), np.float32), INT0, INT0, "x"), "scale 'x'"),
    ],
)
def test_invalid_tensors_and_scales_are_rejected_by_name(call, message):
    with pytest.raises(attend.Error, match=f"^{message}: expected"):
        call()


def test_latent_rows_are_stored_and_attended_to(rng, library):
    latent, rope = (library.tensor(rng.standard_normal((5, d), dtype=np.float32)) for d in (64, 16))
    cache = library.tensor(np.zeros((3, 4, 80), np.float32))
    slots = np.array([8, 9, 10, 11, 0], np.int32)
    attend.store_mla(latent, rope, cache, library.tensor(slots))
    rows = np.concatenate([library.array(latent), library.array(rope)], 1)
    np.testing.assert_array_equal(library.array(cache).reshape(12, 80)[slots], rows)
    q, q_rope = (rng.standard_normal((1, 3, d), dtype=np.float32) for d in (64, 16))
    out, lse = attend.mla(
        library.tensor(q), library.tensor(q_rope), cache, library.tensor(np.array([0, 1], np.int32)),
        library.tensor(np.array([5], np.int32)), 0.25, page_table=library.tensor(np.array([[2, 0]], np.int32)),
        return_lse=True,
    )  # fmt: skip
    want, want_lse = reference.attend(np.concatenate([q, q_rope], 2), rows[:, None], rows[:, None, :64], 0.25)
    check(library.array(out), want)
    check(library.array(lse), want_lse.T)


def test_merged_parts_match_the_full_result(rng, any_library):
    to = any_library.tensor
    q, k, v = (rng.standard_normal(s, dtype=np.float32) for s in ((2, 4, 16), (9, 2, 16), (9, 2, 16)))
    parts = [reference.attend(q, k[s], v[s]) for s in (slice(0, 5), slice(5, 9))]
    arguments = [to(x.astype(np.float32)) for out, lse in parts for x in (out, lse.T)]
    out, lse = attend.merge(*arguments)
    want, want_lse = reference.attend(q, k, v)
    check(any_library.array(out), want)
    check(any_library.array(lse), want_lse.T)


def test_backends_are_described():
    table = attend.backends()
    assert {"torch_native", "triton", "flashinfer", "fa3", "flashmla"} <= set(table)
    assert table["flashmla"]["MLA"]["page_sizes"] == [64]
    assert "cpu" in table["torch_native"]["MHA"]["decode"]


def test_build_info_reports_capabilities():
    info = attend.build_info()
    assert info["version"] == attend.__version__
    assert info["instruction_set"] in {"portable", "avx2", "avx512", "avx512-bf16", "amx"}
    assert all(re.fullmatch(r"(\d+[af]?(-real|-virtual)?|native)", name) for name in info["cuda_architectures"])


def test_gpu_builds_report_their_architectures():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    q = torch.zeros(1, 1, 64, device="cuda", dtype=torch.bfloat16)
    slots = torch.zeros(1, device="cuda", dtype=torch.int32)
    if attend.build_info()["cuda_architectures"]:
        attend.store_kv(q, q, q[None].clone(), q[None].clone(), slots)
    else:
        with pytest.raises(attend.Error, match="without CUDA"):
            attend.store_kv(q, q, q[None].clone(), q[None].clone(), slots)


def test_errors_have_a_code():
    with pytest.raises(RuntimeError) as caught:
        attend.merge(np.ones(3, np.float32), *[np.ones((1, 1), np.float32)] * 3)
    assert caught.type is attend.InvalidArgument and caught.value.code == "invalid_argument"
    assert isinstance(caught.value, attend.Error) and isinstance(caught.value, ValueError)


def test_version_matches_the_package():
    from importlib.metadata import PackageNotFoundError, version

    try:
        assert attend.__version__ == version("attend-llm")
    except PackageNotFoundError:
        pytest.skip("attend is imported from a folder, not installed")


def test_every_function_documents_shapes():
    for function in (attend.attention, attend.store_kv, attend.store_mla, attend.merge):
        assert "num_tokens" in function.__doc__
