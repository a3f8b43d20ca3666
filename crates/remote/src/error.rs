use std::io;

/// Why an object cannot be read. The messages name neither the object, which the caller knows, nor credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The URL or the settings are wrong.
    #[error("{0}")]
    Settings(String),
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// The server refuses access.
    #[error("{0}")]
    Denied(String),
    /// The server cannot do what is needed.
    #[error("{0}")]
    Unsupported(String),
    /// The server answers, but nothing that the protocol defines.
    #[error("{0}")]
    Undefined(String),
    /// Another object has taken the place of the one that was opened.
    #[error("the object was replaced while it was read; start again")]
    Changed,
    /// The server cannot be reached, or fails again and again.
    #[error("{0}")]
    Unreachable(String),
}

impl RemoteError {
    /// An upload whose object exists.
    pub(crate) fn exists() -> Self {
        Self::Denied("there is an object of this name, and none is replaced; choose another".to_owned())
    }
}

impl From<RemoteError> for io::Error {
    fn from(error: RemoteError) -> Self {
        let kind = match error {
            RemoteError::Settings(_) => io::ErrorKind::InvalidInput,
            RemoteError::NotFound(_) => io::ErrorKind::NotFound,
            RemoteError::Denied(_) => io::ErrorKind::PermissionDenied,
            RemoteError::Unsupported(_) => io::ErrorKind::Unsupported,
            RemoteError::Undefined(_) | RemoteError::Changed => io::ErrorKind::InvalidData,
            RemoteError::Unreachable(_) => io::ErrorKind::ConnectionAborted,
        };
        Self::new(kind, error)
    }
}
