"""Erase data, prove that it is gone and keep it out; legal holds and the audit log."""
