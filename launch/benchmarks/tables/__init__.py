"""Result tables made of cached runs."""
