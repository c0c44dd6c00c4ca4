"""Tables in files and databases, about which an agent answers questions with code."""
