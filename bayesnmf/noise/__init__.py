"""Noises: how counts are distributed around their expected values. A noise is a class, and a new one is a file."""
