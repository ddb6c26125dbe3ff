"""Make the starts of an ascent, and choose the start to continue from."""
