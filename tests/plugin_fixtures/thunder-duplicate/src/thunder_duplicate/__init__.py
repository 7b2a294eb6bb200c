"""A plugin whose executor has the name of another one."""
