"""Entry point of the command `trueup` and of `python -m trueup`.

It loads nothing before it handles interruptions.
"""

import signal


def run_command_line() -> None:
    """Load and run the command line; an interruption of loading ends it once loaded, as a later one does at once."""
    early: list[int] = []

    def loaded() -> None:
        if waits:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if early:
            raise KeyboardInterrupt

    # Raised amid an import, it would print a traceback, or be lost in what modules do as they load.
    if waits := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, frame: early.append(number))
    from trueup.cli import main as run

    run(loaded)


if __name__ == "__main__":
    run_command_line()
