"""The command line: typer and rich around what the other packages do."""
