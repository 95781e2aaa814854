"""The SQL stores' behaviour, written once over a small dialect for each engine.

A port class holds a `Dialect` and states its rules as closures over a `Transaction`:

    def length(self, scope: Scope, session: str) -> int:
        rows = self.dialect.ask(scope, "find_session_length", session=session)

Statements are named and live in `sql/*.sql`, with `:name` parameters and `{fragment}`s. A dialect package overrides one
by a statement of the same name in its own `sql/` folder. `:scope`, `:clock` and `:change` are bound by the transaction.
This package imports the ports and the core only; a backend imports this package, never the reverse.
"""
