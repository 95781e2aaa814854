"""A folder of Markdown files that is synchronized with a memory."""
