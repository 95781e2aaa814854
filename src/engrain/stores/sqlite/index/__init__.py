"""Search over one scope, from columns that are held in memory and follow the file."""
