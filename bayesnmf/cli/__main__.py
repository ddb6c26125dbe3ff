"""Run the command line by `python -m bayesnmf.cli`."""

from bayesnmf.cli.entry import main

raise SystemExit(main())
