//! JSON records: type inference, and the decoder.
