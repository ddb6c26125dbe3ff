"""From a call to a fit: one runner for each method."""
