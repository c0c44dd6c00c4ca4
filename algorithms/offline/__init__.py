"""Learning without sampling: behavior cloning, ILQL, ranked actions."""
