"""Errors that are raised before a kernel is called, with attend.Error's code."""

from ._attend import Error, InvalidArgument


def rejection(code, message):
    error = InvalidArgument(message) if code == "invalid_argument" else Error(message)
    error.code = code
    return error
