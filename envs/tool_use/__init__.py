"""Questions that are answered with tools."""
