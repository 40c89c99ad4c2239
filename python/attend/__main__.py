"""python -m attend: the command attend."""

from ._command import main

main()
