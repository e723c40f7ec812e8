"""Steps as graphs: the sizes they are padded to, capturing and replaying, drawing, fetching results."""
