"""A plugin that needs what is not there."""
