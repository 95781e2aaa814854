"""Messages as models and transcripts write them."""
