"""A local web page of run folders: episodes, tokens, groups, timelines and curves."""
