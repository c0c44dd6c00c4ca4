"""Files that a run writes and reads back: trajectory logs, demonstrations, datasets, configs."""
