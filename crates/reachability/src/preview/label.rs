//! Labels of rows for people.

use ovsdb::replica::RowView;

/// The row's name; for tables without names, its main columns; else its UUID.
pub fn label(row: RowView<'_>) -> String {
    let text = |column: &str| row.get(column).map(|datum| datum.to_string()).unwrap_or_default();
    let words = match row.schema.name.as_str() {
        "ACL" => format!("{} {} {} {}", text("direction"), text("priority"), text("action"), text("match")),
        "Logical_Router_Policy" => format!("{} {} {}", text("priority"), text("action"), text("match")),
        "Logical_Router_Static_Route" => {
            let by = if text("policy") == "src-ip" { "from " } else { "" };
            format!("{by}{} via {}", text("ip_prefix"), text("nexthop"))
        }
        "NAT" => format!("{} {} → {}", text("type"), text("logical_ip"), text("external_ip")),
        "QoS" => format!("{} {} {}", text("direction"), text("priority"), text("match")),
        "Static_MAC_Binding" => format!("{} {}", text("logical_port"), text("ip")),
        "Meter_Band" => format!("{} {}", text("action"), text("rate")),
        _ => text("name"),
    };
    if words.is_empty() { row.uuid.to_string() } else { words }
}

/// The columns that labels of a table contain.
pub fn label_columns(table: &str) -> &'static [&'static str] {
    match table {
        "ACL" => &["direction", "priority", "action", "match"],
        "Logical_Router_Policy" => &["priority", "action", "match"],
        "Logical_Router_Static_Route" => &["policy", "ip_prefix", "nexthop"],
        "NAT" => &["type", "logical_ip", "external_ip"],
        "QoS" => &["direction", "priority", "match"],
        "Static_MAC_Binding" => &["logical_port", "ip"],
        "Meter_Band" => &["action", "rate"],
        _ => &["name"],
    }
}
