"""Reading, checking, splitting and simulating counts."""
