"""Run the command line by `python -m bayesnmf`."""

from bayesnmf.cli.entry import main

if __name__ == "__main__":
    raise SystemExit(main())
