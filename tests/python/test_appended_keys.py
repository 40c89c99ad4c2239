"""New keys that attention kernels on a GPU append themselves, compared with a separate launch that stores
them."""

import pytest
from attend import flash_attn_interface as flash
from launches import num_launches

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

MANY = [0, 1, 62, 63, 64, 65, 127, 191, 500, 1023, 0, 300]


class Case:
    """Cache of pages in random order with space for `num_new` keys after `seqlens`, and a call that appends
    these keys."""

    def __init__(self, seqlens, num_new, page_size=16, heads=8, kv_heads=2, dim=128, dim_v=None, seqlen_q=1, dtype=torch.bfloat16,
                 packed=False):  # fmt: skip
        torch.manual_seed(len(seqlens) * 1000 + num_new)
        dim_v, batch = dim_v or dim, len(seqlens)
        width = -(-(max(seqlens) + num_new) // page_size)
        draw = lambda *shape: torch.randn(*shape, device="cuda", dtype=dtype)
        self.q = draw(batch, seqlen_q, heads, dim)
        self.k, self.v = (draw(batch * width, page_size, kv_heads, d) for d in (dim, dim_v))
        if packed:  # like layers: parts of one row
            new = draw(batch, num_new, kv_heads * (dim + dim_v) + 24)
            self.k_new, self.v_new = (
                part.unflatten(-1, (kv_heads, -1)) for part in new.split([kv_heads * dim, kv_heads * dim_v, 24], -1)[:2]
            )
        else:
            self.k_new, self.v_new = (draw(batch, num_new, kv_heads, d) for d in (dim, dim_v))
        self.table = torch.randperm(batch * width, device="cuda").int().view(batch, width)
        self.lengths = torch.tensor(seqlens, dtype=torch.int32, device="cuda")

    def plan(self, **masks):
        batch, seqlen_q, heads, dim = self.q.shape
        return flash.get_scheduler_metadata(
            batch, seqlen_q, 0, heads, self.k.shape[2], dim, self.lengths, headdim_v=self.v.shape[3],
            max_seqlen_k_new=self.k_new.shape[1], **masks,
        )  # fmt: skip

    def call(self, k, v, **options):
        return flash.flash_attn_with_kvcache(
            self.q, k, v, self.k_new, self.v_new, cache_seqlens=self.lengths, page_table=self.table, return_softmax_lse=True, **options
        )

    def check(self, **masks):
        """Returns the bits of a planned call, which stores the keys in a separate launch."""
        caches = [(self.k.clone(), self.v.clone()) for _ in range(2)]
        got = self.call(*caches[0], **masks)
        want = self.call(*caches[1], scheduler_metadata=self.plan(**masks), **masks)
        for a, b in zip((*got, *caches[0]), (*want, *caches[1])):
            assert torch.equal(a, b)
        for r, n in enumerate(self.lengths.tolist()):
            row = caches[0][0][self.table[r].long()].flatten(0, 1)
            assert torch.equal(row[n : n + self.k_new.shape[1]], self.k_new[r])


@pytest.mark.parametrize("page_size", [1, 16, 64, 256])
@pytest.mark.parametrize("num_new", [1, 3, 64, 65])
def test_new_keys_in_pages_and_key_tiles_of_any_size(page_size, num_new):
    Case(MANY, num_new, page_size).check(causal=True)


@pytest.mark.parametrize("seqlens", [[0], [63], [4095], [30000], [4000, 5], [64 * n - 1 for n in range(1, 41)]], ids=str)
@pytest.mark.parametrize("kv_heads", [1, 8])
@pytest.mark.parametrize("num_new", [1, 5])
def test_new_keys_across_the_ranges_of_ctas_and_clusters(seqlens, kv_heads, num_new):
    Case(seqlens, num_new, 64, 8, kv_heads).check(causal=True)


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (8, 1), (32, 2), (64, 1)])
@pytest.mark.parametrize("seqlen_q", [1, 2, 4, 9])
@pytest.mark.parametrize("causal", [True, False])
def test_new_keys_with_any_gqa_group_size(heads, kv_heads, seqlen_q, causal):
    Case([5, 70, 0, 1000], seqlen_q, 16, heads, kv_heads, seqlen_q=seqlen_q).check(causal=causal)


@pytest.mark.parametrize("dim, dim_v", [(64, 64), (40, 40), (128, 128), (192, 128), (256, 256), (96, 64), (128, 256)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_new_keys_with_any_head_dim_and_dtype(dim, dim_v, dtype):
    Case(MANY, 2, dim=dim, dim_v=dim_v, dtype=dtype).check(causal=True)


@pytest.mark.parametrize("masks", [dict(window_size=(0, 0)), dict(window_size=(2, 0)), dict(window_size=(100, 0)), dict(attention_chunk=50)], ids=str)
@pytest.mark.parametrize("seqlen_q", [1, 3])
def test_new_keys_are_stored_outside_the_mask_too(masks, seqlen_q):
    Case(MANY, 3, seqlen_q=seqlen_q).check(causal=True, **masks)


@pytest.mark.parametrize("num_reqs", [1, 17, 130, 512, 513])
def test_new_keys_for_any_number_of_requests(num_reqs):
    Case([n * 37 % 200 for n in range(num_reqs)], 1, kv_heads=1).check(causal=True)


def test_new_keys_in_wider_rows():
    Case(MANY, 2, packed=True).check(causal=True)


def test_new_keys_without_16_byte_alignment():
    case = Case(MANY, 2)
    case.k_new = torch.randn(len(MANY), 2, 2, 129, device="cuda", dtype=torch.bfloat16)[..., 1:]
    case.check(causal=True)


def test_new_keys_are_divided_by_descales():
    Case(MANY, 2).check(causal=True)
    case = Case(MANY, 2)
    k, v = case.k.clone(), case.v.clone()
    case.call(k, v, causal=True, k_descale=2.0, v_descale=2.0)
    for r, n in enumerate(MANY):
        assert torch.equal(k[case.table[r].long()].flatten(0, 1)[n : n + 2], case.k_new[r] / 2)


@pytest.mark.parametrize("seqlens", [[40] * 5, [3000]], ids=str)
def test_graph_replays_append_keys_at_each_step(seqlens):
    case = Case([n + 8 for n in seqlens], 1, kv_heads=1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = case.call(case.k, case.v, causal=True)
    for step in range(4):
        case.lengths.copy_(torch.tensor([max(0, n - 30 * (step % 2)) + step for n in seqlens]))
        case.k_new.normal_(), case.v_new.normal_()
        k, v = case.k.clone(), case.v.clone()
        graph.replay()
        want, want_lse = case.call(k, v, causal=True, scheduler_metadata=case.plan(causal=True))
        for a, b in ((out, want), (lse, want_lse), (case.k, k), (case.v, v)):
            assert torch.equal(a, b)


def test_decode_with_new_keys_is_one_launch():
    case = Case([40] * 4, 1)
    assert num_launches(lambda: case.call(case.k, case.v, causal=True)) == 1
    assert num_launches(lambda: case.call(case.k, case.v, causal=True, attention_chunk=64)) == 2


def test_workspaces_reuse_memory_cached_by_torch():
    """Workspaces of attend can use memory that torch caches, like torch's own tensors. Fills the GPU, so no
    other process may use it."""
    # Kernels loaded later need memory too. No other test has the second case's head count, which has no
    # workspace yet.
    same_kernels, case = (Case([40] * 5, 1, heads=2 * n, kv_heads=n, dim=248) for n in (12, 13))
    same_kernels.check(causal=True)
    torch.cuda.synchronize()
    blocks, size = [], 1 << 34
    while size >= 1 << 20:
        try:
            blocks.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    del blocks
    assert torch.cuda.mem_get_info()[0] < 1 << 24
    out, _ = case.call(case.k, case.v, causal=True)
    torch.cuda.empty_cache()
    assert torch.equal(out, case.call(case.k, case.v, causal=True)[0])
