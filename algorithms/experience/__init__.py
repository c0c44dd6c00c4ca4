"""Experience before credit assignment: rewards, filters, replay, self-imitation, schedules."""
