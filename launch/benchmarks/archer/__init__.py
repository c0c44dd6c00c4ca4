"""ArCHer's claim of sample efficiency, measured in environment turns."""
