"""What users of Headwater import: connections, records, scans. `headwater.connect` is the way in."""
