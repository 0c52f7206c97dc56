//! JSON-RPC 1.0 as OVSDB uses it: requests, replies and notifications in both directions.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// An incoming message; its contents stay unparsed until their type is known.
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
        // serde would accept an array for a struct; a message is an object.
        if !text.trim_start().starts_with('{') {
            return Err(serde::de::Error::custom("a message is an object"));
        }
        serde_json::from_str(text)
    }

    /// The ID of the request that this replies to.
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

pub(crate) fn request(id: u64, method: &str, params: impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Request { id, method, params })
}

pub(crate) fn echo_reply(id: &RawValue, params: Option<&RawValue>) -> Vec<u8> {
    format!(r#"{{"id":{},"error":null,"result":{}}}"#, id.get(), params.map_or("[]", RawValue::get)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_and_notifications_are_distinguished() {
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
