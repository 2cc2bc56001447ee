"""Who answers queries: engines, each in processes of its own. `contract.py` says what an engine gets and gives."""
