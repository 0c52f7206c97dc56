//! The annotations that carry facts: how they are read, and how ours are written.

use netmodel::Prefix;
use serde::Deserialize;


/// The network of a pod.
pub const POD_NETWORKS: &str = "k8s.ovn.org/pod-networks";

/// A value that stands on an object, or why it cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Annotated<T> {
    /// Nothing is there.
    #[default]
    Absent,
    /// It can be used.
    Valid(T),
    /// It cannot; why.
    Broken(Box<str>),
}

impl<T> Annotated<T> {
    /// The value, if it can be used.
    pub fn valid(&self) -> Option<&T> {
        if let Self::Valid(value) = self { Some(value) } else { None }
    }

    /// Why it cannot be used, if so.
    pub fn broken(&self) -> Option<&str> {
        if let Self::Broken(why) = self { Some(why) } else { None }
    }
}

/// A text for a message: an annotation may be a megabyte.
pub(super) fn shortened(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{:?}…", &text[..at]),
        None => format!("{text:?}"),
    }
}

/// The value of the default network in an annotation that has one for each network.
pub fn default_network<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Networks<T> {
        default: T,
    }
    let networks: Networks<T> = serde_json::from_str(text)
        .map_err(|error| format!("{} is not JSON with a usable \"default\": {error}", shortened(text)))?;
    Ok(networks.default)
}

/// Either one subnet or a list of them, as older and newer controllers write it.
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
    if subnets.is_empty() { Err("there is no subnet in it".into()) } else { Ok(subnets) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_of_both_forms() {
        assert_eq!(read_subnets(r#"{"default":"10.128.0.0/23"}"#).unwrap().len(), 1);
        assert_eq!(read_subnets(r#"{"default":["10.128.0.0/23","fd01:0:0:2::/64"]}"#).unwrap().len(), 2);
        for bad in ["", "[]", r#"{"default":[]}"#, r#"{"default":["10.128.0.1/23"]}"#, r#"{"other":"10.0.0.0/8"}"#] {
            assert!(read_subnets(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_huge_annotation_makes_no_huge_message() {
        let why = crate::PodNetwork::read(&"é".repeat(500_000)).unwrap_err();
        assert!(why.len() < 400, "{}", why.len());
    }
}
