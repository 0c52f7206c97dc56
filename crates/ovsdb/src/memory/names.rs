//! Identities within a transaction: fresh ones, and those that go by a name until their row is inserted.

use std::collections::BTreeMap;

use super::fault::Fault;
use crate::uuid::Uuid;

/// Makes identities: the same seed, the same identities in the same order.
#[derive(Debug, Clone)]
pub(crate) struct Generator(u64);

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64: every seed is a good one, and no two of its values repeat.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn uuid(&mut self) -> Uuid {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next().to_be_bytes());
        // Version 4 and its variant, as the server's own.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid::from_bytes(bytes)
    }
}

/// The names of one transaction.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    symbols: BTreeMap<String, Symbol>,
    generator: &'a mut Generator,
}

#[derive(Debug)]
struct Symbol {
    uuid: Uuid,
    inserted: bool,
}

impl<'a> Names<'a> {
    pub(crate) fn new(generator: &'a mut Generator) -> Self {
        Self { symbols: BTreeMap::new(), generator }
    }

    pub(crate) fn fresh(&mut self) -> Uuid {
        self.generator.uuid()
    }

    /// What a name stands for. A name may be used before its insert, and even without one: the server gives it an
    /// identity at first sight and never looks back.
    pub(crate) fn resolve(&mut self, name: &str) -> Result<Uuid, Fault> {
        if !is_id(name) {
            return Err(Fault::syntax(format!("named-uuid {name:?} is not a valid <id>")));
        }
        Ok(self.symbol(name).uuid)
    }

    /// The identity of a row that is inserted under a name. Where the insert says its uuid too, uses of the name before
    /// it stay with the identity of their first sight, which will be nobody's.
    pub(crate) fn insert(&mut self, name: &str, explicit: Option<Uuid>) -> Result<Uuid, Fault> {
        let symbol = self.symbol(name);
        if symbol.inserted {
            return Err(Fault::duplicate_name(format!("{name:?} appeared on an earlier insert")));
        }
        symbol.inserted = true;
        symbol.uuid = explicit.unwrap_or(symbol.uuid);
        Ok(symbol.uuid)
    }

    fn symbol(&mut self, name: &str) -> &mut Symbol {
        let generator = &mut *self.generator;
        self.symbols.entry(name.to_owned()).or_insert_with(|| Symbol { uuid: generator.uuid(), inserted: false })
    }
}

/// What RFC 7047 calls an id: table names, column names, lock names, names of rows.
pub(crate) fn is_id(text: &str) -> bool {
    let mut letters = text.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}
