"""The page to look into a memory and correct it: `engrain ui`, with the extra `ui`."""
