//! Reads the archive and draws Weir's pages.
