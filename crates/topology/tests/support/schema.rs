//! The schema of the real northbound database.

use lab::Suite;
use lab::directories::Directories;
use lab::progress::Progress;
use ovsdb::schema::DatabaseSchema;

/// From the lab's default node image.
pub(crate) fn schema() -> DatabaseSchema {
    schema_of(Suite::Trixie)
}

/// From the node image of a suite.
pub(crate) fn schema_of(suite: Suite) -> DatabaseSchema {
    let place = Directories::from_environment().expect("the lab's folders");
    let image = lab::image::ensure(&place, suite, &Progress::silent()).expect("this test needs the lab's node image");
    let text = std::fs::read_to_string(image.join("usr/share/ovn/ovn-nb.ovsschema")).expect("the image has the schema");
    DatabaseSchema::parse(&serde_json::from_str(&text).unwrap()).unwrap()
}
