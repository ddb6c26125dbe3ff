"""Exit codes."""

SUCCESS = 0
DOES_NOT_HOLD = 1
BAD_INPUT = 2
SIGNALLED = 128  # and the number of the signal, as in shells
INTERRUPTED = SIGNALLED + 2
CLOSED_PIPE = SIGNALLED + 13  # SIGPIPE, which is not defined on Windows
