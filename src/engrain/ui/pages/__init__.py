"""The pages, one module each: functions from a visit to an answer."""
