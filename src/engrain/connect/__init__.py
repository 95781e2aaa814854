"""Give coding agents a memory: settings of the clients, the hook, the resident process, and what is kept."""
