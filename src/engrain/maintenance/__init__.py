"""Keep a store in good order: expire, consolidate, embed, back up, by hand or in the background."""
