"""Which model, and how many components: by held-out counts, evidence or stability."""
