//! The schema check, against complete schemas with one element removed or changed.

use std::collections::BTreeSet;

use ovn_schema::northbound::{self, Acl, LogicalSwitchPort, StaticMacBinding};
use ovn_schema::open_vswitch::{self, Bridge};
use ovn_schema::{ColumnDeclaration, DATABASES, Database, Feature, Holds, Report, TableDeclaration, TableRow};
use ovsdb::datum::{Atom, Datum};
use ovsdb::schema::{BaseType, ColumnSchema, ColumnType, DatabaseSchema, TableSchema};

/// The smallest complete schema.
fn complete(database: &Database) -> DatabaseSchema {
    let tables = database.tables().map(|table| {
        let mut columns: Vec<_> = table.columns.iter().map(column).collect();
        columns.sort_by(|one, two| one.name.cmp(&two.name));
        let name = table.name.to_owned();
        (name.clone(), TableSchema { name, columns, indexes: vec![], is_root: true, max_rows: None })
    });
    DatabaseSchema { name: database.name.into(), version: "99.0.0".into(), tables: tables.collect() }
}

fn column(declared: &ColumnDeclaration) -> ColumnSchema {
    let (min, max) = match declared.shape.holds {
        Holds::One => (1, Some(1)),
        Holds::AtMostOne => (0, Some(1)),
        Holds::Many => (0, None),
    };
    let mut key = BaseType::of(declared.shape.key);
    if !declared.choices.is_empty() {
        key.choices = Some(Datum::set(declared.choices.iter().map(|choice| Atom::String(choice.word.into()))));
    }
    let kind = ColumnType { key, value: declared.shape.value.map(BaseType::of), min, max };
    ColumnSchema { name: declared.name.into(), kind, ephemeral: false, mutable: true }
}

fn change(schema: &mut DatabaseSchema, table: &str, column: &str, change: impl FnOnce(&mut ColumnSchema)) {
    let columns = &mut schema.tables.get_mut(table).expect("a declared table").columns;
    change(columns.iter_mut().find(|other| other.name == column).expect("a declared column"));
}

fn remove(schema: &mut DatabaseSchema, table: &str, column: &str) {
    schema.tables.get_mut(table).expect("a declared table").columns.retain(|other| other.name != column);
}

/// The features of a table and of these columns.
fn features(table: &TableDeclaration, columns: &[ColumnDeclaration]) -> BTreeSet<Feature> {
    let of_column = |column: &ColumnDeclaration| {
        let own = column.feature.unwrap_or(table.feature);
        column.choices.iter().map(move |choice| choice.feature.unwrap_or(own)).chain([own])
    };
    columns.iter().flat_map(of_column).collect()
}

fn off(report: &Report) -> BTreeSet<Feature> {
    report.features().off().collect()
}

#[test]
fn a_complete_schema_enables_every_feature() {
    for database in &DATABASES {
        let report = database.check(&complete(database));
        assert_eq!((report.off.len(), report.require_core()), (0, Ok(())), "{report:?}");
        assert_eq!(report.lines().count(), 0);
    }
}

#[test]
fn a_missing_column_disables_only_the_features_that_need_it() {
    for database in &DATABASES {
        for table in database.tables() {
            let mut schema = complete(database);
            schema.tables.remove(table.name);
            let report = database.check(&schema);
            assert_eq!(off(&report), features(table, table.columns), "{}", table.name);
            assert_eq!(report.columns_present(table.name).count(), 0);

            for (place, column) in table.columns.iter().enumerate() {
                let mut schema = complete(database);
                remove(&mut schema, table.name, column.name);
                let report = database.check(&schema);
                let name = format!("{}.{}", table.name, column.name);
                assert_eq!(off(&report), features(table, &table.columns[place..=place]), "{name}");
                let missing = report.off.iter().flat_map(|off| &off.missing).chain(&report.errors);
                assert!(missing.map(ToString::to_string).all(|missing| missing == name), "{name}: {report:?}");
                assert_eq!(report.columns_present(table.name).count(), table.columns.len() - 1);
                assert!(!report.columns_present(table.name).any(|present| present == column.name));
            }
        }
    }
}

#[test]
fn every_feature_is_needed_by_something() {
    let tables = DATABASES.iter().flat_map(ovn_schema::Database::tables);
    let declared = tables.flat_map(|table| features(table, table.columns));
    assert_eq!(declared.collect::<BTreeSet<_>>(), Feature::ALL.iter().copied().collect());
}

#[test]
fn a_wrong_type_counts_as_missing_and_names_both_types() {
    let mut schema = complete(&northbound::DATABASE);
    change(&mut schema, "ACL", "tier", |tier| tier.kind.max = None);
    let report = northbound::DATABASE.check(&schema);
    assert_eq!(off(&report), [Feature::AclTiers].into());
    let line = report.lines().next().unwrap();
    assert!(line.contains("ACL.tier as one integer (it is a set of integer)"), "{line}");
    assert!(line.contains("acl-tiers") && line.contains("AdminNetworkPolicy"), "{line}");
    assert!(!report.columns_present("ACL").any(|column| column == "tier"));
}

#[test]
fn a_disallowed_value_disables_the_feature_that_uses_it() {
    let mut schema = complete(&northbound::DATABASE);
    let words = ["allow", "allow-related", "drop", "reject"].map(|word| Atom::String(word.into()));
    change(&mut schema, "ACL", "action", |action| action.kind.key.choices = Some(Datum::set(words)));
    let report = northbound::DATABASE.check(&schema);
    assert_eq!(off(&report), [Feature::AclTiers].into());
    assert!(report.lines().next().unwrap().contains("ACL.action with the value \"pass\""));
    // The column itself is still usable.
    assert!(report.columns_present("ACL").any(|column| column == "action"));
}

#[test]
fn missing_core_columns_are_an_error_that_names_all() {
    let mut schema = complete(&northbound::DATABASE);
    remove(&mut schema, "ACL", "match");
    schema.tables.remove("Address_Set");
    let report = northbound::DATABASE.check(&schema);
    let message = report.require_core().unwrap_err().to_string();
    for word in ["ACL.match", "Address_Set", "OVN_Northbound", "99.0.0"] {
        assert!(message.contains(word), "{message}");
    }
    assert!(!report.features().has(Feature::Core) && report.off.is_empty());
}

#[test]
fn a_wrong_database_is_an_error() {
    let report = northbound::DATABASE.check(&complete(&open_vswitch::DATABASE));
    let message = report.require_core().unwrap_err().to_string();
    assert!(message.contains("OVN_Northbound") && message.contains("Open_vSwitch"), "{message}");
}

#[test]
fn written_rows_fit_the_servers_schema() {
    let mut schema = complete(&northbound::DATABASE);
    remove(&mut schema, "ACL", "tier");
    schema.tables.remove("Static_MAC_Binding");
    let report = northbound::DATABASE.check(&schema);

    let acl = Acl { priority: 1000, ..Acl::default() };
    assert_eq!(report.insert_row(&acl).unwrap(), acl.to_sparse_row());
    let update = report.update_row(&acl).unwrap().0;
    assert!(!update.contains_key("tier") && update.len() == Acl::COLUMNS.len() - 1);

    let tiered = Acl { tier: 1, ..acl };
    for refused in [report.insert_row(&tiered), report.update_row(&tiered)] {
        let refused = refused.unwrap_err();
        assert_eq!((refused.table, refused.column, refused.feature), ("ACL", "tier", Feature::AclTiers));
    }
    let binding = StaticMacBinding { ip: "169.254.169.4".into(), ..StaticMacBinding::default() };
    assert_eq!(report.insert_row(&binding).unwrap_err().feature, Feature::StaticMacBindings);
}

#[test]
fn read_only_and_immutable_columns_are_not_written() {
    let port = LogicalSwitchPort { name: "p".into(), up: Some(true), ..LogicalSwitchPort::default() };
    let report = northbound::DATABASE.check(&complete(&northbound::DATABASE));
    assert_eq!(report.insert_row(&port).unwrap(), ovsdb::transaction::Row::new().text("name", "p"));
    let update = report.update_row(&port).unwrap().0;
    assert!(!update.contains_key("up") && update.contains_key("name") && update.contains_key("enabled"));

    let mut schema = complete(&open_vswitch::DATABASE);
    change(&mut schema, "Bridge", "name", |name| name.mutable = false);
    let report = open_vswitch::DATABASE.check(&schema);
    let bridge = Bridge { name: "br-ex".into(), ..Bridge::default() };
    assert!(report.insert_row(&bridge).unwrap().0.contains_key("name"));
    assert!(!report.update_row(&bridge).unwrap().0.contains_key("name"));
}
