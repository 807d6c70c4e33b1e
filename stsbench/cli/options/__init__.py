"""What commands are asked for: a frozen dataclass a command, whose fields are its arguments and options."""
