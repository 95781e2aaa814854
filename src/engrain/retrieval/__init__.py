"""The read path: parse the query, collect candidates, fuse, rank, select and pack them."""
