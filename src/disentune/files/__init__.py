"""Files on disk or in an object store: reads and writes with retries, leases, YAML with line numbers."""
