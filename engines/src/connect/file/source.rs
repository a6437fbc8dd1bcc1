//! Lines of files and of standard input.
