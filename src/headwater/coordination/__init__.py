"""Pure state machines of the group protocols: requests and times come in, answers and changes to store come out."""
