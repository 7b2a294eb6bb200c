"""A plugin whose executor is not valid."""
