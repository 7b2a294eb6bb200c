"""A plugin whose hook raises."""
