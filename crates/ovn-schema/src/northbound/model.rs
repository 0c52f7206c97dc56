//! Schema of the northbound database from the declarations, for the in-memory database.
//!
//! Types come from the declarations; root tables, reference types and indexes are listed here. A test compares the
//! result with a real server's schema.

use ovsdb::datum::{Atom, AtomicType, Datum};
use ovsdb::schema::{BaseType, ColumnSchema, ColumnType, DatabaseSchema, Reference, TableSchema};

use super::DATABASE;
use crate::table::ColumnDeclaration;
use crate::value::Holds;

/// Schema version whose columns are declared.
const VERSION: &str = "7.11.0";

/// Tables whose rows exist without a reference. A row of another table goes with the last reference to it.
const ROOTS: [&str; 13] = [
    "Address_Set",
    "BFD",
    "Chassis_Template_Var",
    "Copp",
    "DHCP_Options",
    "Load_Balancer",
    "Load_Balancer_Group",
    "Logical_Router",
    "Logical_Switch",
    "Meter",
    "NB_Global",
    "Port_Group",
    "Static_MAC_Binding",
];

/// Combinations of columns that no two rows of a table share.
const UNIQUE: [(&str, &[&str]); 12] = [
    ("Address_Set", &["name"]),
    ("BFD", &["logical_port", "dst_ip"]),
    ("Chassis_Template_Var", &["chassis"]),
    ("Connection", &["target"]),
    ("Copp", &["name"]),
    ("Gateway_Chassis", &["name"]),
    ("Load_Balancer_Group", &["name"]),
    ("Logical_Router_Port", &["name"]),
    ("Logical_Switch_Port", &["name"]),
    ("Meter", &["name"]),
    ("Port_Group", &["name"]),
    ("Static_MAC_Binding", &["logical_port", "ip"]),
];

/// Table that a column refers to, and whether the reference is strong.
fn reference(table: &str, column: &str) -> Option<(&'static str, bool)> {
    Some(match (table, column) {
        ("NB_Global", "connections") => ("Connection", true),
        ("Meter", "bands") => ("Meter_Band", true),
        ("Port_Group", "ports") => ("Logical_Switch_Port", false),
        ("Logical_Switch", "ports") => ("Logical_Switch_Port", true),
        ("Logical_Router", "ports") => ("Logical_Router_Port", true),
        ("Logical_Switch" | "Port_Group", "acls") => ("ACL", true),
        ("Logical_Switch", "qos_rules") => ("QoS", true),
        ("Logical_Router", "static_routes") => ("Logical_Router_Static_Route", true),
        ("Logical_Router", "policies") => ("Logical_Router_Policy", true),
        ("Logical_Router", "nat") => ("NAT", true),
        ("Logical_Router_Port", "gateway_chassis") => ("Gateway_Chassis", true),
        ("Logical_Router_Static_Route", "bfd") => ("BFD", false),
        ("Logical_Switch_Port", "dhcpv4_options" | "dhcpv6_options") => ("DHCP_Options", false),
        (_, "load_balancer") => ("Load_Balancer", false),
        (_, "load_balancer_group") => ("Load_Balancer_Group", true),
        (_, "copp") => ("Copp", false),
        _ => return None,
    })
}

/// The declared tables as a schema.
pub fn schema() -> DatabaseSchema {
    let tables = DATABASE.tables().map(|declared| {
        let mut columns: Vec<ColumnSchema> =
            declared.columns.iter().map(|column| column_schema(declared.name, column)).collect();
        columns.sort_by(|one, two| one.name.cmp(&two.name));
        let mut table = TableSchema {
            name: declared.name.to_owned(),
            columns,
            indexes: Vec::new(),
            is_root: ROOTS.contains(&declared.name),
            max_rows: (declared.name == "NB_Global").then_some(1),
        };
        let unique = UNIQUE.iter().filter(|(name, _)| *name == declared.name);
        let places = |names: &[&str]| names.iter().filter_map(|name| table.column_index(name)).collect();
        table.indexes = unique.map(|(_, names)| places(names)).collect();
        (declared.name.to_owned(), table)
    });
    DatabaseSchema { name: DATABASE.name.to_owned(), version: VERSION.to_owned(), tables: tables.collect() }
}

fn column_schema(table: &str, declared: &ColumnDeclaration) -> ColumnSchema {
    let mut key = BaseType::of(declared.shape.key);
    if declared.shape.key == AtomicType::String && !declared.choices.is_empty() {
        key.choices = Some(Datum::set(declared.choices.iter().map(|choice| Atom::String(choice.word.into()))));
    }
    if let Some((table, strong)) = reference(table, declared.name) {
        key.refers_to = Some(Reference { table: table.to_owned(), strong });
    }
    let (min, max) = match declared.shape.holds {
        Holds::One => (1, Some(1)),
        Holds::AtMostOne => (0, Some(1)),
        Holds::Many => (0, None),
    };
    let kind = ColumnType { key, value: declared.shape.value.map(BaseType::of), min, max };
    ColumnSchema { name: declared.name.to_owned(), kind, ephemeral: false, mutable: true }
}
