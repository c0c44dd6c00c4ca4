"""Credit assignment on the host: advantages, transforms, token masks, token weights."""
