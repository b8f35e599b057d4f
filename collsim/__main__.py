"""``python -m collsim``: the command line, where its script is not on the path."""

from collsim.cli import main

main()
