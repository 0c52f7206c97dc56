//! What the kernel refused.

use std::io;

/// What the kernel refused, and what was asked of it.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}: {why}")]
pub struct KernelError {
    doing: String,
    why: String,
    code: Option<i32>,
}

impl KernelError {
    pub(crate) fn of(doing: impl Into<String>, error: &rtnetlink::Error) -> Self {
        let code = match error {
            rtnetlink::Error::NetlinkError(message) => Some(message.raw_code().abs()),
            _ => None,
        };
        let why = code.map_or_else(|| error.to_string(), |code| io::Error::from_raw_os_error(code).to_string());
        Self { doing: doing.into(), why, code }
    }

    /// Whether what was asked for is not there; such as what shall be removed.
    pub fn is_absent(&self) -> bool {
        use nix::errno::Errno;
        let absent = [Errno::ESRCH, Errno::ENOENT, Errno::ENODEV, Errno::EADDRNOTAVAIL];
        self.code.is_some_and(|code| absent.iter().any(|errno| *errno as i32 == code))
    }
}

/// What shall be gone may be gone already.
pub(crate) fn unless_absent(result: Result<(), KernelError>) -> Result<(), KernelError> {
    match result {
        Err(error) if error.is_absent() => Ok(()),
        other => other,
    }
}
