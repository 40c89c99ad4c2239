"""Libraries whose tensors the tests pass: numpy always; torch and jax if installed; torch on a GPU if
available."""

import ml_dtypes
import numpy as np
import pytest

TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


class Numpy:
    name = "numpy"

    def tensor(self, array, dtype=None):
        array = np.asarray(array)
        return np.array(array, dtype=getattr(ml_dtypes, dtype, dtype)) if dtype else array.copy()

    def array(self, tensor):
        return np.asarray(tensor)


class Torch:
    def __init__(self, device):
        self.torch = pytest.importorskip("torch")
        self.device, self.name = device, "torch on " + device
        if device == "cuda" and not self.torch.cuda.is_available():
            pytest.skip("torch sees no GPU")

    def tensor(self, array, dtype=None):
        tensor = self.torch.from_numpy(np.array(array)).to(self.device)
        return tensor if dtype is None else tensor.to(getattr(self.torch, dtype))

    def array(self, tensor):
        tensor = tensor.detach().cpu()
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


class Jax:
    name = "jax"

    def __init__(self):
        pytest.importorskip("jax")
        import jax.numpy

        # attend reads jax arrays on the CPU, and a GPU build of jax would allocate most of a GPU's memory.
        jax.config.update("jax_platforms", "cpu")
        self.jnp = jax.numpy

    def tensor(self, array, dtype=None):
        return self.jnp.asarray(array, dtype=dtype)

    def array(self, tensor):
        return np.asarray(tensor)


def make_library(name):
    if name == "numpy":
        return Numpy()
    return Jax() if name == "jax" else Torch("cuda" if name == "torch-cuda" else "cpu")


@pytest.fixture(params=["numpy", "torch-cpu", "torch-cuda"])
def library(request):
    """Libraries whose tensors can be written in place."""
    return make_library(request.param)


@pytest.fixture(params=["numpy", "torch-cpu", "torch-cuda", "jax"])
def any_library(request):
    return make_library(request.param)


@pytest.fixture
def rng(request):
    # Seeded by the test's name, so that values do not depend on which other tests run.
    return np.random.default_rng(list(request.node.name.encode()))


def check(got, want, dtype="float32"):
    """Checks that the largest error, relative to the largest output, is within the dtype's rounding;
    infinities must be equal."""
    got, want = np.asarray(got).astype(np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert np.array_equal(np.isinf(got), np.isinf(want)) and not np.isnan(got).any()
    finite = np.isfinite(want)
    scale = np.abs(want[finite]).max(initial=1e-3)
    np.testing.assert_allclose(got[finite], want[finite], rtol=0, atol=TOLERANCE[dtype] * max(scale, 0.5))
