"""The group protocols as pure state machines: requests and times come in, answers and what to store come out."""
