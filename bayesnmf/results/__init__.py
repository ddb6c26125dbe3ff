"""What a fit holds, and what follows from it: draws, matching, summaries, files."""
