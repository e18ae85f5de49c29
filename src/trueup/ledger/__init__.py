"""Privacy accounting in exact fractions, and the durable ledger of what was spent."""
