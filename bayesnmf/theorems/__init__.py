"""The statements that relate models and methods, each checked on the user's counts."""
