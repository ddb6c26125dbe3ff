"""What all tests share."""

import os

# Two chains of NUTS run side by side only if XLA shows two devices; it must be told before JAX starts.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
os.environ.setdefault("MPLBACKEND", "Agg")
