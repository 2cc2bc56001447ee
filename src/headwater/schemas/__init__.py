"""What schemas mean: parsing, compatibility, and the columns and values that follow from them. Pure."""
