//! What the image of this member contains: the release of ovsdb-server and the schema.

use std::process::Stdio;

use serde::Deserialize;
use tokio::process::Command;

use crate::options::Options;
use crate::version::{Version, of_server};

/// Versions of the image; none where they cannot be read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Image {
    /// Release of ovsdb-server.
    pub(crate) server: Option<Version>,
    /// Version of the image's schema file; none if it cannot be read.
    pub(crate) schema: Option<Version>,
}

#[derive(Deserialize)]
struct SchemaFile {
    version: String,
}

impl Image {
    /// Asks the program and reads the schema file. What is missing is reported when it is needed.
    pub(crate) async fn read(options: &Options) -> Self {
        let asked =
            Command::new("ovsdb-server").arg("--version").stdin(Stdio::null()).kill_on_drop(true).output().await;
        let server = asked.ok().and_then(|output| of_server(&String::from_utf8_lossy(&output.stdout)));
        let file = std::fs::read(options.kind.schema_file(&options.schema_directory)).ok();
        let schema = file.and_then(|text| serde_json::from_slice::<SchemaFile>(&text).ok());
        Self { server, schema: schema.and_then(|schema| schema.version.parse().ok()) }
    }
}
