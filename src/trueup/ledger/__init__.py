"""What was spent: accounting in exact fractions, and the durable ledger."""
