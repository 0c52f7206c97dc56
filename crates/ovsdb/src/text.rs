//! Compact strings of the replica: short ones inline, addresses and uuids as bits, others shared.
//!
//! Most strings of a database of ports are short (`pod`, `true`), a MAC with an IPv4 address
//! (`0a:58:0a:80:00:05 10.128.0.5`), or a uuid; none of these needs an allocation. The encoding is lossless: a text
//! that would not round-trip is stored as text.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::uuid::Uuid;

const INLINE: usize = 22;

/// An immutable string of 24 bytes.
#[derive(Clone)]
pub struct Text(Form);

#[derive(Clone)]
enum Form {
    Inline(u8, [u8; INLINE]),
    Shared(Arc<str>),
    MacAndV4([u8; 6], [u8; 4]),
    Uuid([u8; 16]),
}

impl Text {
    /// Stores a string; a long one is allocated.
    pub fn new(text: &str) -> Self {
        Self::compact(text).unwrap_or_else(|| Self(Form::Shared(text.into())))
    }

    fn compact(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() <= INLINE {
            let mut inline = [0; INLINE];
            inline[..bytes.len()].copy_from_slice(bytes);
            return Some(Self(Form::Inline(u8::try_from(bytes.len()).ok()?, inline)));
        }
        let form = if bytes.len() == 36 {
            Form::Uuid(*Uuid::parse(text)?.as_bytes())
        } else if bytes.len() <= 33 && bytes[17] == b' ' {
            let address: Ipv4Addr = text.get(18..)?.parse().ok()?;
            Form::MacAndV4(parse_mac(&bytes[..17])?, address.octets())
        } else {
            return None;
        };
        let kept = Self(form);
        // Upper case and other spellings would not round-trip.
        (kept.as_str() == text).then_some(kept)
    }

    /// The string; borrowed if stored as text.
    pub fn as_str(&self) -> Cow<'_, str> {
        match &self.0 {
            Form::Inline(length, bytes) => String::from_utf8_lossy(&bytes[..usize::from(*length)]),
            Form::Shared(text) => Cow::Borrowed(text),
            Form::MacAndV4(mac, address) => {
                let [a, b, c, d, e, f] = mac;
                Cow::Owned(format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} {}", Ipv4Addr::from(*address)))
            }
            Form::Uuid(bytes) => Cow::Owned(Uuid::from_bytes(*bytes).to_string()),
        }
    }

    /// True for `""`.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Form::Inline(0, _))
    }
}

fn parse_mac(text: &[u8]) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    for (index, byte) in mac.iter_mut().enumerate() {
        let part = std::str::from_utf8(text.get(index * 3..index * 3 + 2)?).ok()?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    Some(mac)
}

/// Equal texts have equal forms: the form is a function of the text.
impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Inline(a, one), Form::Inline(b, two)) => a == b && one == two,
            (Form::Shared(one), Form::Shared(two)) => Arc::ptr_eq(one, two) || one == two,
            (Form::MacAndV4(a, one), Form::MacAndV4(b, two)) => a == b && one == two,
            (Form::Uuid(one), Form::Uuid(two)) => one == two,
            _ => false,
        }
    }
}

impl Eq for Text {}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(&other.as_str())
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Form::Inline(length, bytes) => bytes[..usize::from(*length)].hash(state),
            Form::Shared(text) => text.hash(state),
            Form::MacAndV4(mac, address) => (mac, address).hash(state),
            Form::Uuid(bytes) => bytes.hash(state),
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_str())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// Lets equal values share one allocation. Caches a fixed number of recent values, so it needs no clearing.
#[derive(Debug)]
pub(crate) struct Interner<T> {
    recent: Vec<Option<T>>,
    hasher: std::hash::BuildHasherDefault<std::hash::DefaultHasher>,
}

impl<T: Clone> Interner<T> {
    pub(crate) fn new(size: usize) -> Self {
        Self { recent: vec![None; size.next_power_of_two()], hasher: std::hash::BuildHasherDefault::new() }
    }

    /// The cached value if `same` finds it equal; else the result of `make`, which is cached.
    pub(crate) fn intern<K: Hash + ?Sized>(
        &mut self,
        key: &K,
        same: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> T {
        let slot = usize::try_from(self.hasher.hash_one(key)).unwrap_or(0) & (self.recent.len() - 1);
        match &self.recent[slot] {
            Some(kept) if same(kept) => kept.clone(),
            _ => {
                let made = make();
                self.recent[slot] = Some(made.clone());
                made
            }
        }
    }
}

/// Interns long strings.
#[derive(Debug)]
pub(crate) struct TextInterner(Interner<Text>);

impl TextInterner {
    pub(crate) fn new() -> Self {
        Self(Interner::new(1024))
    }

    pub(crate) fn text(&mut self, text: &str) -> Text {
        Text::compact(text)
            .unwrap_or_else(|| self.0.intern(text, |kept| *kept == *text, || Text(Form::Shared(text.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_and_uuids_round_trip_without_allocation() {
        for text in ["0a:58:0a:80:00:05 10.128.0.5", "36bef046-7da7-43a5-905a-c17899216fcb", "pod", ""] {
            let kept = Text::new(text);
            assert_eq!(kept.as_str(), text);
            assert!(!matches!(kept.0, Form::Shared(_)), "{text}");
        }
        for text in
            ["0A:58:0a:80:00:05 10.128.0.5", "0a:58:0a:80:00:05 10.128.0.05", "36BEF046-7da7-43a5-905a-c17899216fcb"]
        {
            assert_eq!(Text::new(text).as_str(), text);
        }
        assert!(size_of::<Text>() <= 24);
    }

    #[test]
    fn long_strings_are_shared() {
        let mut sharer = TextInterner::new();
        let long = "a string that is too long to be kept inline";
        let (one, two) = (sharer.text(long), sharer.text(long));
        assert!(matches!((&one.0, &two.0), (Form::Shared(a), Form::Shared(b)) if Arc::ptr_eq(a, b)));
    }

    proptest! {
        #[test]
        fn every_string_round_trips(text in ".*") {
            let kept = Text::new(&text);
            prop_assert_eq!(kept.as_str(), &*text);
            prop_assert_eq!(kept.is_empty(), text.is_empty());
        }

        #[test]
        fn order_and_equality_are_those_of_the_strings(one in "[a-c0-9: .]{0,30}", two in "[a-c0-9: .]{0,30}") {
            prop_assert_eq!(Text::new(&one).cmp(&Text::new(&two)), one.cmp(&two));
            prop_assert_eq!(Text::new(&one) == Text::new(&two), one == two);
        }
    }
}
