"""The commands. `main.py` registers them; heavy modules are imported inside the commands, so that each starts fast."""
