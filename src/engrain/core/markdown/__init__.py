"""Memory as Markdown pages, both ways."""
