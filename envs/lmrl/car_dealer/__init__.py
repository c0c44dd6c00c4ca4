"""Car Dealer of LMRL-Gym: a seller bargains with a buyer."""
