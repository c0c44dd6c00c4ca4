"""Environments of other packages and servers, each behind one thin adapter."""
