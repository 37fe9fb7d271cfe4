"""Ways out of trouble: name the row or source at fault, restate files, supersede barriers."""
