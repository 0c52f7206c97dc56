//! The declarations against the schemas in the lab's node images.

use std::path::{Path, PathBuf};

use lab::Suite;
use lab::directories::Directories;
use lab::progress::Progress;
use ovn_schema::{DATABASES, Database, Feature, Holds, Report};
use ovsdb::schema::DatabaseSchema;

const FILES: [&str; 3] =
    ["usr/share/ovn/ovn-nb.ovsschema", "usr/share/ovn/ovn-sb.ovsschema", "usr/share/openvswitch/vswitch.ovsschema"];

/// The directory of a node image, which is built if missing.
fn image(suite: Suite) -> PathBuf {
    let place = Directories::from_environment().expect("the lab's folders");
    lab::image::ensure(&place, suite, &Progress::silent()).expect("this test needs the lab's node image")
}

fn schemas(suite: Suite) -> Vec<(Database, DatabaseSchema)> {
    let image = image(suite);
    DATABASES.into_iter().zip(FILES.map(|file| parse(&read(&image.join(file))))).collect()
}

fn read(path: &Path) -> String {
    let text = std::fs::read_to_string(path);
    text.map_err(|error| format!("{}: {error}", path.display())).expect("the node image has its schemas")
}

fn parse(text: &str) -> DatabaseSchema {
    let json = serde_json::from_str(text).expect("a schema is JSON");
    DatabaseSchema::parse(&json).expect("a schema of a release")
}

fn check(suite: Suite) -> Vec<Report> {
    schemas(suite).iter().map(|(database, schema)| database.check(schema)).collect()
}

fn off(reports: &[Report]) -> Vec<Feature> {
    reports.iter().flat_map(|report| &report.off).map(|off| off.feature).collect()
}

#[test]
fn the_copy_for_tests_without_a_node_image_is_debian_13s() {
    let image = image(Suite::Trixie);
    assert!(
        read(&image.join(FILES[0])) == include_str!("fixtures/ovn-nb-25.03.ovsschema"),
        "copy {} of {} to tests/fixtures",
        FILES[0],
        image.display()
    );
}

#[test]
fn debian_13_supports_every_feature() {
    for report in check(Suite::Trixie) {
        assert_eq!(report.require_core(), Ok(()));
        assert_eq!(report.lines().collect::<Vec<_>>(), [""; 0]);
    }
}

#[test]
fn debian_12_supports_the_core_and_lacks_newer_features() {
    let reports = check(Suite::Bookworm);
    for report in &reports {
        assert_eq!(report.require_core(), Ok(()));
    }
    assert_eq!(off(&reports), [Feature::AclTiers, Feature::ConditionalNat, Feature::QosMarks]);
    let missing: Vec<String> =
        reports.iter().flat_map(|report| &report.off).flat_map(|off| &off.missing).map(ToString::to_string).collect();
    let expected = [
        "ACL.action with the value \"pass\"",
        "ACL.tier",
        "NAT.match",
        "NAT.priority",
        "QoS.action with the value \"mark\"",
    ];
    assert_eq!(missing, expected);
}

#[test]
fn declared_defaults_match_the_servers() {
    // Sparse rows and partial updates rely on it.
    for (database, schema) in schemas(Suite::Trixie) {
        for table in database.tables() {
            let empty = (table.rewrite)(ovsdb::uuid::Uuid::ZERO, &ovsdb::operation::RowValues::new()).unwrap();
            assert!(empty.sparse.0.is_empty());
            for column in table.columns {
                let kind = &schema.tables[table.name].column(column.name).unwrap().kind;
                // A set with a minimum of one has no usable default.
                let must_be_named = column.shape.holds == Holds::Many && kind.min == 1;
                assert!(
                    must_be_named || kind.is_default(&empty.full.0[column.name]),
                    "{}.{}: {}",
                    table.name,
                    column.name,
                    empty.full.0[column.name]
                );
            }
        }
    }
}

#[test]
fn immutable_columns_are_left_out_of_updates() {
    let (database, schema) = schemas(Suite::Trixie).pop().unwrap();
    let report = database.check(&schema);
    let bridge = ovn_schema::open_vswitch::Bridge { name: "br-ex".into(), ..Default::default() };
    assert!(!report.update_row(&bridge).unwrap().0.contains_key("name"));
}

#[test]
fn the_declared_northbound_schema_matches_the_server() {
    let declared = ovn_schema::northbound::schema();
    let report = ovn_schema::northbound::DATABASE.check(&declared);
    assert_eq!(report.lines().collect::<Vec<_>>(), [""; 0]);
    let (_, server) = schemas(Suite::Trixie).swap_remove(0);
    assert_eq!((&declared.name, &declared.version), (&server.name, &server.version));
    for (name, table) in &declared.tables {
        let real = &server.tables[name];
        assert_eq!((table.is_root, table.max_rows), (real.is_root, real.max_rows), "{name}");
        let unique = |table: &ovsdb::schema::TableSchema| -> Vec<Vec<String>> {
            let names = |index: &Vec<usize>| index.iter().map(|place| table.columns[*place].name.clone()).collect();
            table.indexes.iter().map(names).collect()
        };
        assert_eq!(unique(table), unique(real), "{name}");
        for column in &table.columns {
            let there = real.column(&column.name).expect("a declared column");
            assert_eq!(column.kind.key.refers_to, there.kind.key.refers_to, "{name}.{}", column.name);
        }
    }
}
