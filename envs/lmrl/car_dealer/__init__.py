"""Car Dealer of LMRL-Gym: the agent sells a car to a buyer."""
