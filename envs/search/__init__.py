"""A generated encyclopedia, its search index, and questions that several pages answer."""
