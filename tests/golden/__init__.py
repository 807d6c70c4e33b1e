"""What commands print, recorded: a difference is meant, or a fault."""
