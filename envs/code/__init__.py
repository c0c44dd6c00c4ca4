"""Problems whose answers are computed, and an environment in which code finds them."""
