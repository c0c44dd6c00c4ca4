"""Images, pages, videos and rooms that an agent looks at: generated, with exact answers."""
