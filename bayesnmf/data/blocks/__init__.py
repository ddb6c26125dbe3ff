"""Counts on disk, read block by block: sources, the store that they are written to, and counts that read from it."""
