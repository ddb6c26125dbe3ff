"""One page about a fit or a comparison, for a browser: `report.py` has the function `report`."""
