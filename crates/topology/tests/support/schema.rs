//! The schema of the real northbound database.

use lab::Suite;
use lab::directories::Directories;
use lab::progress::Progress;
use ovsdb::schema::DatabaseSchema;

/// A copy of Debian 13's, so that these tests need no node image; a test of `ovn-schema` compares it with the image.
const DEBIAN_13: &str = include_str!("../../../ovn-schema/tests/fixtures/ovn-nb-25.03.ovsschema");

/// Schema of Debian 13, the lab's default node image.
pub(crate) fn schema() -> DatabaseSchema {
    parse(DEBIAN_13)
}

/// From the node image of a suite.
pub(crate) fn schema_of(suite: Suite) -> DatabaseSchema {
    let place = Directories::from_environment().expect("the lab's folders");
    let image = lab::image::ensure(&place, suite, &Progress::silent()).expect("this test needs the lab's node image");
    parse(&std::fs::read_to_string(image.join("usr/share/ovn/ovn-nb.ovsschema")).expect("the image has the schema"))
}

fn parse(text: &str) -> DatabaseSchema {
    DatabaseSchema::parse(&serde_json::from_str(text).unwrap()).unwrap()
}
