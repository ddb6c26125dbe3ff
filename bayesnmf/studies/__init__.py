"""Questions to many fits: which rank, how stable, by which method, and whether intervals are right."""
