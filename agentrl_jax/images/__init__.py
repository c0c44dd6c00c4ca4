"""Images of messages: their bytes and pixels, and the patches that a vision tower is given."""
