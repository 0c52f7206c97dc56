//! Errors of netlink requests.

use std::io;

/// A request that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {error_text}")]
pub(crate) struct KernelError {
    action: String,
    error_text: String,
    code: Option<i32>,
}

impl KernelError {
    pub(crate) fn of(action: impl Into<String>, error: &rtnetlink::Error) -> Self {
        let code = match error {
            rtnetlink::Error::NetlinkError(message) => Some(message.raw_code().abs()),
            _ => None,
        };
        let error_text = code.map_or_else(|| error.to_string(), |code| io::Error::from_raw_os_error(code).to_string());
        Self { action: action.into(), error_text, code }
    }

    /// True if the object of the request does not exist.
    pub(crate) fn is_absent(&self) -> bool {
        use nix::errno::Errno;
        let absent = [Errno::ESRCH, Errno::ENOENT, Errno::ENODEV, Errno::EADDRNOTAVAIL];
        self.code.is_some_and(|code| absent.iter().any(|errno| *errno as i32 == code))
    }
}

/// Removing an object that does not exist is not an error.
pub(crate) fn unless_absent(result: Result<(), KernelError>) -> Result<(), KernelError> {
    match result {
        Err(error) if error.is_absent() => Ok(()),
        other => other,
    }
}
