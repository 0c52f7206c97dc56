//! YAML as a tree that knows its lines and keeps its scalars as they were written.
//!
//! ```text
//!  text ──[`parse`]──▶ Document (Node: position, scalar | list | map) ──[`emit`]──▶ text without anchors
//! ```
//!
//! A scalar is not converted to a number or boolean: NMState reads it by its own rules, so what is rendered must be what
//! was written.

mod emit;
mod node;
mod parse;

pub use emit::emit;
pub use node::{Content, Key, Node, Position};
pub use parse::{Document, YamlError, parse};
