"""What all tests share."""

import os
import signal

from hypothesis import HealthCheck, settings

os.environ.setdefault("MPLBACKEND", "Agg")

# How long examples take is a property of the machine and of what else runs on it.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# A process that was started in the background, or by nohup, ignores these; so would what tests signal and start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (getattr(signal, "SIGHUP", None), signal.SIG_DFL)):
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
