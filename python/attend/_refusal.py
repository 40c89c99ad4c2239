"""Errors that are raised before the kernels are asked, with the code that attend.Error carries."""

from ._attend import Error, InvalidArgument


def refusal(code, message):
    error = InvalidArgument(message) if code == "invalid_argument" else Error(message)
    error.code = code
    return error
