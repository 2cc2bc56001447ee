"""SQL over HTTP: what a request asks, and the answer that is sent while the query runs."""
