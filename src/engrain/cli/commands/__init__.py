"""The commands, a few to a module; each is imported when it is called."""
