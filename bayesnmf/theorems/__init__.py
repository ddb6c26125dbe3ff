"""The statements that tie the models and methods together, each checked on counts of the user."""
