"""Arrow Flight SQL: topics as tables for ADBC and JDBC drivers."""
