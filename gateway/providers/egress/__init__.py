"""The only way out to upstreams: connections to checked addresses, pooled, paced and bounded."""
