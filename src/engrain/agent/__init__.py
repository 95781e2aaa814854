"""An agent that recalls before it answers, uses tools, and keeps what happens."""
