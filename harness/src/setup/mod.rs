//! What the embedded environment needs, fetched once into a cache directory; and what this host is.
