//! What OVN's role `ovn-controller` lets each chassis write, from the rows that northd writes for the server.

use serde_json::Value;

use crate::cluster::until;
use crate::report::Report;
use crate::site::Site;

/// The strings of a set in OVSDB's JSON.
fn strings(value: &Value) -> Vec<String> {
    let set = value[1].as_array().filter(|_| value[0] == "set").cloned().unwrap_or_else(|| vec![value.clone()]);
    let mut texts: Vec<String> = set.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect();
    texts.sort();
    texts
}

pub(crate) fn permissions(site: &Site, report: &mut Report) {
    let columns = "--columns=table,authorization,insert_delete,update";
    let rows = until("northd has written the role", || {
        let text = site.cluster.lab.sbctl(&["--format=json", columns, "list", "RBAC_Permission"]).ok()?;
        let rows = serde_json::from_str::<Value>(&text).ok()?["data"].as_array()?.clone();
        (rows.len() > 5).then_some(rows)
    });
    report.heading("Every chassis, in the southbound database");
    report.paragraph("The role `ovn-controller` of OVN 25.03. Who may write a row: the client whose certificate has the name in that column.");
    report.table(&["table", "whose rows", "insert and delete", "columns"]);
    let mut lines: Vec<[String; 4]> = Vec::new();
    for row in rows {
        let whose: Vec<String> = strings(&row[1]).into_iter().filter(|column| !column.is_empty()).collect();
        let whose = if whose.is_empty() { "**any**".to_owned() } else { whose.join(", ") };
        let insert = if row[2] == true { "yes" } else { "no" };
        lines.push([row[0].as_str().unwrap().to_owned(), whose, insert.to_owned(), strings(&row[3]).join(", ")]);
    }
    lines.sort();
    for [table, whose, insert, columns] in &lines {
        report.row(&[&format!("`{table}`"), whose, insert, columns]);
    }
}
