"""Settings become processes. Only this room and the commands open stores and read the machine's clock."""
