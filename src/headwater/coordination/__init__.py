"""Pure state machines of the group protocols: events and the time go in, answers and what to store come out."""
