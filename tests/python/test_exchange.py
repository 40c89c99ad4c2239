"""Failing exchange functions of a library: results that were allocated already are freed."""

import ctypes

import attend
import numpy as np
import pytest
from attend.flash_mla import flash_mla_with_kvcache

_POINTER = ctypes.c_void_p


class _Tensor(ctypes.Structure):
    _fields_ = [("data", _POINTER), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]  # fmt: skip


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", _POINTER), ("deleter", _DELETER),
                     ("flags", ctypes.c_uint64), ("tensor", _Tensor)]  # fmt: skip
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Tensor), ctypes.POINTER(ctypes.POINTER(_Managed)), _POINTER, _POINTER)
_TO_PYTHON = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Managed), ctypes.POINTER(_POINTER))
_VIEW = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Tensor))


class _Exchange(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", _POINTER), ("allocate", _ALLOCATE),
                ("to_managed", _POINTER), ("to_python", _TO_PYTHON), ("view", _VIEW), ("current_stream", _POINTER)]  # fmt: skip


class Library:
    """Library with one kind of tensor, contiguous numpy arrays, that accepts a limited number of tensors."""

    def __init__(self, num_accepted):
        self.allocated, self.freed, self.num_accepted, self._held = 0, 0, num_accepted, []
        library = self

        @_DELETER
        def free(managed):
            library.freed += 1

        @_ALLOCATE
        def allocate(prototype, out, error_context, set_error):
            shape = [prototype.contents.shape[i] for i in range(prototype.contents.ndim)]
            memory, extents = np.zeros(shape, np.float32), (ctypes.c_int64 * len(shape))(*shape)
            tensor = _Tensor.from_buffer_copy(prototype.contents)
            tensor.data, tensor.shape = memory.ctypes.data, extents
            managed = _Managed(1, 1, None, free, 0, tensor)
            library._held.append((memory, extents, managed))
            library.allocated += 1
            out[0] = ctypes.pointer(managed)
            return 0

        @_TO_PYTHON
        def to_python(managed, out):
            if library.num_accepted == 0:
                managed.contents.deleter(managed)
                return -1
            library.num_accepted -= 1
            tensor = library.tensor_type(None, managed)
            library._held.append(tensor)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))
            out[0] = id(tensor)
            return 0

        @_VIEW
        def view(tensor, out):
            shape = tensor.array.shape
            tensor.extents = (ctypes.c_int64 * len(shape))(*shape)
            out[0] = _Tensor(tensor.array.ctypes.data, 1, 0, len(shape), 2, 32, 1, tensor.extents, None, 0)
            return 0

        self.functions = _Exchange(1, 1, None, allocate, None, to_python, view, None)
        self._held += [free, allocate, to_python, view]
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [_POINTER, ctypes.c_char_p, _POINTER]

        class Tensor:
            __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(self.functions), b"dlpack_exchange_api", None)

            def __init__(self, array, managed=None):
                self.array, self.managed = array, managed

            def drop(self):
                self.managed.contents.deleter(self.managed)

        self.tensor_type = Tensor

    def drop_all(self):
        for held in self._held:
            if isinstance(held, self.tensor_type):
                held.drop()


def call(library):
    q = np.ones((1, 1, 2, 24), np.float32)
    return flash_mla_with_kvcache(
        library.tensor_type(q), np.ones((1, 16, 1, 24), np.float32), np.zeros((1, 1), np.int32), np.full(1, 5, np.int32), 16
    )


def test_results_share_one_allocation_that_is_freed_with_the_last():
    library = Library(num_accepted=2)
    out, lse = call(library)
    assert library.allocated == 1 and library.freed == 0
    out.drop()
    assert library.freed == 0
    lse.drop()
    assert library.freed == 1


@pytest.mark.parametrize("num_accepted", [0, 1])
def test_results_that_a_library_rejects_are_freed(num_accepted):
    library = Library(num_accepted)
    with pytest.raises(attend.Error, match="did not import a result"):
        call(library)
    library.drop_all()
    assert library.allocated == 1 and library.freed == 1
