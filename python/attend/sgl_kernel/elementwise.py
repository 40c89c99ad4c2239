"""sgl_kernel's layers between attention with attend's kernels: norms, gated activations, rotary embeddings.

On a GPU tensors are float32, float16 or bfloat16. CPU kernels compute in float32: float16 and bfloat16 tensors are
converted to it and rounded once, except for rotary embeddings, which support them directly. enable_pdl is a hint.
"""

from .. import _attend
from .._rejection import rejection as _rejection

__all__ = [
    "apply_rope_with_cos_sin_cache_inplace",
    "fused_add_rmsnorm",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "gemma_fused_add_rmsnorm",
    "gemma_rmsnorm",
    "rmsnorm",
    "silu_and_mul",
]


def rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    """input / sqrt(mean(input^2) + eps) * weight over the last dimension; input [.., hidden] with 2 or 3 dimensions,
    weight [hidden]; out, which may be input, is written instead of a new tensor."""
    return _rmsnorm(input, weight, eps, out, 0.0)


def gemma_rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    """rmsnorm with weight + 1 as weight."""
    return _rmsnorm(input, weight, eps, out, 1.0)


def fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    """residual += input; input = rmsnorm(residual), both in place: [num_tokens, hidden]."""
    _add_rmsnorm(input, residual, weight, eps, 0.0)


def gemma_fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    """fused_add_rmsnorm with weight + 1 as weight."""
    _add_rmsnorm(input, residual, weight, eps, 1.0)


def silu_and_mul(input, out=None, enable_pdl=None):
    """silu(input[..., :dim]) * input[..., dim:] with input [.., 2 * dim]."""
    return _gated(input, out, "silu")


def gelu_and_mul(input, out=None, enable_pdl=None):
    """gelu(input[..., :dim]) * input[..., dim:], with gelu(x) = x Phi(x)."""
    return _gated(input, out, "gelu")


def gelu_tanh_and_mul(input, out=None, enable_pdl=None):
    """gelu_and_mul with the tanh approximation of GELU."""
    return _gated(input, out, "gelu_tanh")


def apply_rope_with_cos_sin_cache_inplace(
    positions, query, key, head_size, cos_sin_cache, is_neox=True, fused_set_kv_buffer_arg=None, enable_pdl=None
):
    """Rotates query and key in place by the angles of their tokens' positions.

    positions      int32 or int64 [num_tokens], rows of cos_sin_cache; a GPU uses the last row for larger positions
    query, key     [num_tokens, num_heads * head_size], or [num_tokens, num_heads, head_size]
    cos_sin_cache  [num_positions, rotary_dim]: cosines, then sines; the first rotary_dim elements of a head are rotated
    is_neox        pairs are (i, i + rotary_dim / 2), otherwise (2 i, 2 i + 1)
    """
    if fused_set_kv_buffer_arg is not None:
        raise _rejection("unsupported", "fused_set_kv_buffer_arg: expected None; use attend.store_kv")
    _attend.apply_rope(
        positions.int(), _heads("query", query, head_size), _heads("key", key, head_size), cos_sin_cache, not is_neox
    )


def _heads(name, x, head_size):
    """Views x as [num_tokens, num_heads, head_size]."""
    if x.dim() == 3 and x.shape[2] == head_size:
        return x
    if x.dim() != 2 or x.shape[1] % head_size:
        raise _rejection("invalid_argument", f"{name} of shape {tuple(x.shape)}: expected [num_tokens, num_heads * {head_size}]")
    return x.unflatten(1, (-1, head_size))


def _is_narrow_on_cpu(x):
    return x.device.type == "cpu" and x.element_size() < 4


def _rmsnorm(input, weight, eps, out, weight_offset):
    if out is None:
        out = input.new_empty(input.shape)
    if not _is_narrow_on_cpu(input):
        _attend.rms_norm(input, weight, eps, out, weight_offset)
        return out
    wide = input.float()
    _attend.rms_norm(wide, weight, eps, wide, weight_offset)
    return out.copy_(wide)


def _add_rmsnorm(input, residual, weight, eps, weight_offset):
    if not _is_narrow_on_cpu(input):
        return _attend.add_rms_norm(input, residual, weight, eps, weight_offset)
    # The residual is rounded before it is normalized, as on GPUs.
    residual.copy_(input.float() + residual.float())
    wide = residual.float()
    _attend.rms_norm(wide, weight, eps, wide, weight_offset)
    input.copy_(wide)


def _gated(input, out, activation):
    if input.shape[-1] % 2:
        raise _rejection("invalid_argument", f"input of shape {tuple(input.shape)}: expected an even last dimension")
    shape = (*input.shape[:-1], input.shape[-1] // 2)
    if out is None:
        out = input.new_empty(shape)
    elif tuple(out.shape) != shape:
        raise _rejection("invalid_argument", f"out of shape {tuple(out.shape)}: expected {shape}")
    if not _is_narrow_on_cpu(input):
        _attend.gated_activation(_rows("input", input), _rows("out", out), activation)
        return out
    wide = _rows("input", input.float())
    result = wide.new_empty((wide.shape[0], shape[-1]))
    _attend.gated_activation(wide, result, activation)
    return out.copy_(result.view(shape))


def _rows(name, x):
    """Views x as [num_rows, columns]."""
    if x.dim() == 2:
        return x
    if not x.is_contiguous():
        raise _rejection("unsupported", f"{name} of shape {tuple(x.shape)}, strides {x.stride()}: expected it contiguous")
    return x.view(-1, x.shape[-1])
