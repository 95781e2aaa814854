"""Words, sentences, passages and summaries of plain text."""
