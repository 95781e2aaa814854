"""A folder of Markdown files kept in step with a memory."""
