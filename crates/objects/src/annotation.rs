//! Annotations: whether they are valid, and their common formats.

use netmodel::Prefix;
use serde::Deserialize;

/// Annotation: addresses, MAC, gateways and routes of a pod.
pub const POD_NETWORKS: &str = "k8s.ovn.org/pod-networks";

/// The value of an annotation, or why it is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Annotated<T> {
    /// The object has no such annotation.
    #[default]
    Absent,
    /// Present and parsed.
    Valid(T),
    /// Invalid, with the reason.
    Broken(Box<str>),
}

impl<T> Annotated<T> {
    /// None if absent or invalid.
    pub fn valid(&self) -> Option<&T> {
        if let Self::Valid(value) = self { Some(value) } else { None }
    }

    /// Why it is invalid; None if absent or valid.
    pub fn broken(&self) -> Option<&str> {
        if let Self::Broken(why) = self { Some(why) } else { None }
    }
}

/// A quoted text for a message, at most 80 characters long: an annotation may be a megabyte.
pub(super) fn shortened(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{:?}…", &text[..at]),
        None => format!("{text:?}"),
    }
}

/// The value of the network `default` in an annotation with values by network.
pub(super) fn default_network<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Networks<T> {
        default: T,
    }
    let networks: Networks<T> = serde_json::from_str(text)
        .map_err(|error| format!("{} is not JSON with a valid \"default\": {error}", shortened(text)))?;
    Ok(networks.default)
}

/// A string or a list: older controllers write one subnet.
pub(super) fn read_subnets(text: &str) -> Result<Vec<Prefix>, String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Subnets {
        One(String),
        Many(Vec<String>),
    }
    let texts = match default_network(text)? {
        Subnets::One(text) => vec![text],
        Subnets::Many(texts) => texts,
    };
    let subnets: Result<Vec<Prefix>, _> = texts.iter().map(|text| text.parse()).collect();
    let subnets = subnets.map_err(|error: netmodel::AddressError| error.to_string())?;
    if subnets.is_empty() { Err("no subnet".into()) } else { Ok(subnets) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_a_string_or_a_list() {
        assert_eq!(read_subnets(r#"{"default":"10.128.0.0/23"}"#).unwrap().len(), 1);
        assert_eq!(read_subnets(r#"{"default":["10.128.0.0/23","fd01:0:0:2::/64"]}"#).unwrap().len(), 2);
        for bad in ["", "[]", r#"{"default":[]}"#, r#"{"default":["10.128.0.1/23"]}"#, r#"{"other":"10.0.0.0/8"}"#] {
            assert!(read_subnets(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn messages_about_long_annotations_are_short() {
        let why = crate::PodNetwork::read(&"é".repeat(500_000)).unwrap_err();
        assert!(why.len() < 400, "{}", why.len());
    }
}
