"""The read path: understand the question, gather, fuse, rank, pack."""
