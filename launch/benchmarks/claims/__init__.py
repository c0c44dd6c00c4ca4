"""Published claims of methods, tested on small tasks."""
