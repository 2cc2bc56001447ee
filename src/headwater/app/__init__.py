"""Where settings become components. Nothing below here opens a store or reads the machine's clock by itself."""
