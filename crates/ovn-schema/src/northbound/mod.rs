//! OVN_Northbound: the desired logical network.

mod balancing;
mod filtering;
mod global;
mod model;
mod routing;
mod switching;

pub use balancing::*;
pub use filtering::*;
pub use global::*;
pub use model::schema;
pub use routing::*;
pub use switching::*;

use crate::database::Database;

/// The tables and columns that this project uses; a server may have more.
pub const DATABASE: Database = Database {
    name: "OVN_Northbound",
    modules: &[global::TABLES, switching::TABLES, routing::TABLES, balancing::TABLES, filtering::TABLES],
};
