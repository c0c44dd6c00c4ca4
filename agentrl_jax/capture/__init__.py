"""The capture endpoint: trajectories from unchanged agent programs that call OpenAI's API.

See docs/capture.md.
"""
