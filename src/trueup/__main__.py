"""Entry point of `python -m trueup`, which runs the command line."""

from trueup.cli import main

main()
