"""Measures of the sandbox: what attacks it holds, and what it costs."""
