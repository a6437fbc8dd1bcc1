//! What every error of the project can say about itself beside its message.

/// An error with a stable code and, where there is one, the next thing to do.
pub trait Coded: std::error::Error {
    /// Stable identifier such as `topic_not_exact`; never reworded once released.
    fn code(&self) -> &'static str;

    /// What the reader can do about it, as one sentence.
    fn hint(&self) -> Option<String> {
        None
    }

    /// Whether the request was refused as it stands (exit code 3) rather than failed (exit code 1).
    fn refused(&self) -> bool {
        false
    }
}

impl<E: Coded + 'static> From<E> for Box<dyn Coded> {
    fn from(error: E) -> Self {
        Box::new(error)
    }
}
