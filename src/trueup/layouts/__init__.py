"""The shapes of problems that methods solve."""
