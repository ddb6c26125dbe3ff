"""Counts: reading, checking, splitting and simulating them."""
