"""`python -m trueup.cli`."""

from trueup.cli import main

main()
