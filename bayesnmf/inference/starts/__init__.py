"""Where an ascent starts, and which of several starts goes on."""
