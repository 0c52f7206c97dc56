//! JSON-RPC 1.0 as OVSDB uses it: requests, answers and notifications, both ways.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A message that came in. What it carries is left as text until it is known what it is.
#[derive(Debug, Deserialize)]
pub(crate) struct Incoming<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) error: Option<&'a RawValue>,
}

impl<'a> Incoming<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        // A list would do for what reads structs, but is no message.
        if !text.trim_start().starts_with('{') {
            return Err(serde::de::Error::custom("a message is an object"));
        }
        serde_json::from_str(text)
    }

    /// The number of the request that this answers.
    pub(crate) fn answers(&self) -> Option<u64> {
        if self.method.is_some() {
            return None;
        }
        self.id?.get().parse().ok()
    }
}

#[derive(Serialize)]
struct Request<'a, P> {
    id: u64,
    method: &'a str,
    params: P,
}

/// The text of a request.
pub(crate) fn request(id: u64, method: &str, params: impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Request { id, method, params })
}

/// The text of the answer to an `echo`.
pub(crate) fn echo_reply(id: &RawValue, params: Option<&RawValue>) -> Vec<u8> {
    format!(r#"{{"id":{},"error":null,"result":{}}}"#, id.get(), params.map_or("[]", RawValue::get)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_notifications_are_told_apart() {
        let answer = Incoming::parse(r#"{"error":null,"id":7,"result":[{}]}"#).unwrap();
        assert_eq!((answer.answers(), answer.result.unwrap().get(), answer.error.is_none()), (Some(7), "[{}]", true));
        let notification = Incoming::parse(r#"{"id":null,"method":"update3","params":["m","t",{}]}"#).unwrap();
        assert_eq!((notification.answers(), notification.method.as_deref()), (None, Some("update3")));
        let echo = Incoming::parse(r#"{"id":"echo","method":"echo","params":[]}"#).unwrap();
        let reply = String::from_utf8(echo_reply(echo.id.unwrap(), echo.params)).unwrap();
        assert_eq!(reply, r#"{"id":"echo","error":null,"result":[]}"#);
        assert!(Incoming::parse("[]").is_err());
    }
}
