"""The one way out to upstreams: connections to checked addresses, kept, paced and bounded."""
