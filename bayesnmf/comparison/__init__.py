"""One model fitted by several methods, on the same footing."""
