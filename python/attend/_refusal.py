"""Errors that are raised before the kernels are asked, with the code that attend.Error carries."""

from ._attend import Error


def refusal(code, message):
    error = Error(message)
    error.code = code
    return error
