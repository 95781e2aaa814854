"""The values that engrain is made of: items, plans, queries, messages, tasks, receipts."""
