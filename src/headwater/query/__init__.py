"""Reading topics as tables of rows, those that are not settled yet included."""
