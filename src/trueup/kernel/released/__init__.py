"""Laws of true counts behind released counts."""
