"""The record of a fit, and functions of it: draws, matching, summaries, files."""
