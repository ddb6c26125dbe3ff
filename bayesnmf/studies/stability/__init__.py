"""Which of the many factorisations: fits from many starts, grouped into modes, with what they have in common."""
