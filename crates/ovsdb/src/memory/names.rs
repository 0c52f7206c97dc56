//! Uuids of a transaction: generated ones, and named ones (`uuid-name`).

use std::collections::BTreeMap;

use super::fault::Fault;
use crate::uuid::Uuid;

/// Generates uuids; the same seed gives the same sequence.
#[derive(Debug, Clone)]
pub(crate) struct Generator(u64);

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64: works for every seed, without repetition.
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
        // Version 4, as the server generates them.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid::from_bytes(bytes)
    }
}

/// The `uuid-name`s of one transaction.
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

    /// The uuid of a name. A name may be used before its insert, or without one: the server assigns a uuid at first
    /// use.
    pub(crate) fn resolve(&mut self, name: &str) -> Result<Uuid, Fault> {
        if !is_id(name) {
            return Err(Fault::syntax(format!("named-uuid {name:?} is not a valid <id>")));
        }
        Ok(self.symbol(name).uuid)
    }

    /// The uuid of a row that is inserted under a name. If the insert also has a uuid, earlier uses of the name keep
    /// the uuid of the first use, which no row has.
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

/// Whether it is an `<id>` of RFC 7047: names of tables, columns, locks and rows.
pub(crate) fn is_id(text: &str) -> bool {
    let mut letters = text.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}
