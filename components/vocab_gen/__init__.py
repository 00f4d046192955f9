"""Documents -> a WordPiece vocabulary."""
