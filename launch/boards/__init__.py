"""Tables of tasks and methods: what their cells are, and what is written of them."""
